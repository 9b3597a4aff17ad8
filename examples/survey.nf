// A survey in 16 jobs: nextflow run examples/survey.nf --catalogue $PWD/deposit.csv --tables $PWD/tables
params.battery = null
params.shards = 16

def options() {
    def battery = params.battery ? "--battery '${params.battery}'" : ""
    "'${params.catalogue}' -o '${params.tables}' ${battery}"
}

process shard {
    cpus 2
    input: val k
    output: val k
    script: "paceline survey ${options()} --shard $k/${params.shards} --n-workers ${task.cpus}"
}

process merge_shards {
    input: val done
    output: stdout
    script: "paceline survey ${options()} --merge"
}

workflow { channel.of(1..params.shards) | shard | collect | merge_shards | view }
