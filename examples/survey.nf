// A survey in 16 jobs: nextflow run examples/survey.nf --catalogue $PWD/deposit.csv --tables $PWD/tables
params.battery = null
params.shards = 16
options = "${params.catalogue} -o ${params.tables}" + (params.battery ? " --battery ${params.battery}" : "")

process shard {
    cpus 2
    input: val k
    output: val k
    script: "paceline survey $options --shard $k/${params.shards} --n-workers ${task.cpus}"
}

process merge {
    input: val done
    output: stdout
    script: "paceline survey $options --merge"
}

workflow { Channel.of(1..params.shards) | shard | collect | merge | view }
