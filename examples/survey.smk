# A survey in 16 jobs: snakemake -s examples/survey.smk --cores 8 --config catalogue=deposit.csv
# Trajectories are no inputs of the rules: after a change of one, run this with --forceall.
import shlex

CATALOGUE = config["catalogue"]
BATTERY = config.get("battery", "")
TABLES = config.get("tables", "tables")
SHARDS = int(config.get("shards", 16))
OPTIONS = shlex.join([CATALOGUE, "-o", TABLES] + (["--battery", BATTERY] if BATTERY else []))


rule merge:
    input: expand("{tables}.done/{k}", tables=TABLES, k=range(1, SHARDS + 1))
    output: f"{TABLES}/survey.json"
    shell: "paceline survey {OPTIONS} --merge"


rule shard:
    input: [CATALOGUE] + ([BATTERY] if BATTERY else [])
    output: touch(f"{TABLES}.done/{{k}}")
    threads: 2
    shell: "paceline survey {OPTIONS} --shard {wildcards.k}/{SHARDS} --n-workers {threads}"
