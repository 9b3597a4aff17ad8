"""What each quantity of a report means, in a line."""

#: Of a worker, and over workers.
OF_WORKERS = {
    "t_init_traj": "opening the trajectory file, once a worker",
    "t_io": "waiting for bytes of the file that reading ahead did not have ready",
    "t_decode": "turning bytes into positions",
    "t_transform": "changing positions before they are analysed",
    "t_compute": "the analysis itself",
    "t_overhead": "the rest of the time at blocks",
    "t_abandoned": "at blocks that another worker was done with sooner",
    "t_wait": "idle: before the first block, between blocks, and after the last one until all were "
    "done",
    "t_comm": "from the end of a block until its results were in their place, mostly while the "
    "worker was at its next block: no part of its wall time",
}
#: Of the whole run.
OF_RUN = {
    "t_total": "the whole run",
    "t_init_top": "parsing the topology, once, before the run",
    "t_init_traj": "opening the trajectory and its index, once, before the run",
    "t_before": "from the beginning of the run until blocks were first dealt",
    "t_blocks": "from then until the last block was done: the wall time of every worker",
    "t_after": "from then until the results were there",
    "t_comm": "receiving and merging results, in the process that collects them",
    "R_comp_IO": "computing over reading and decoding: much above 1, the job is bound by computing "
    "and scales; much below, by reading",
    "R_comp_comm": "mean computing of a worker over communicating: much above 1, more workers pay",
    "imbalance": "the last worker's end over the mean of all workers' ends: 1 where all end "
    "together",
    "bytes_read": "asked of the files",
    "calls": "in how many calls they were asked for",
    "bytes_used": "size of the decoded numbers that the analyses asked for",
    "read_per_used": "bytes read per byte used: below 1 where the file is compressed, above 1 "
    "where it holds much that nobody asked for",
    "read_rate": "bytes read per second of t_blocks, by all workers together",
}
