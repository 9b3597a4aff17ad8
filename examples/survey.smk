# A survey in 16 jobs: snakemake -s examples/survey.smk --cores 8 --config catalogue=deposit.csv
CATALOGUE = config["catalogue"]
BATTERY = config.get("battery", "")
TABLES = config.get("tables", "tables")
SHARDS = config.get("shards", 16)
OPTIONS = f"{CATALOGUE} -o {TABLES}" + (f" --battery {BATTERY}" if BATTERY else "")


rule merge:
    input: expand("{tables}.done/{k}", tables=TABLES, k=range(1, SHARDS + 1))
    output: f"{TABLES}/survey.json"
    shell: "paceline survey {OPTIONS} --merge"


rule shard:
    input: CATALOGUE
    output: touch(f"{TABLES}.done/{{k}}")
    threads: 2
    shell: "paceline survey {OPTIONS} --shard {wildcards.k}/{SHARDS} --n-workers {threads}"
