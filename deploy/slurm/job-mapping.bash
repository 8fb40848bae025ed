# What Prolog and Epilog share. dcgm-exporter's contract: in the directory one file for each GPU, named by its index, with
# the ids of the jobs on it, one on a line. Each change is made under a lock, since jobs come and go at once.

# The job's GPUs as indices, one a line. SLURM_JOB_GPUS holds 0,1 or 0-3; UUIDs, as CUDA_VISIBLE_DEVICES has them since
# Slurm 25.11, are looked up.
job_gpus() {
    local list=${SLURM_JOB_GPUS-${CUDA_VISIBLE_DEVICES-}} entry table=
    IFS=, read -ra entries <<<"$list"
    for entry in "${entries[@]}"; do
        if [[ $entry =~ ^[0-9]{1,3}$ ]]; then
            echo "$((10#$entry))"
        elif [[ $entry =~ ^([0-9]{1,3})-([0-9]{1,3})$ ]]; then
            seq "$((10#${BASH_REMATCH[1]}))" "$((10#${BASH_REMATCH[2]}))"
        elif [[ $entry =~ ^GPU-[0-9a-fA-F-]+$ ]]; then
            # A driver that hangs must not hold up the job.
            [ -n "$table" ] || table=$(timeout -k 1 5 nvidia-smi --query-gpu=index,uuid --format=csv,noheader 2>/dev/null)
            [[ $table =~ (^|$'\n')([0-9]+),\ *"$entry" ]] && echo "${BASH_REMATCH[2]}"
        fi
    done
}

# Calls a function with the job's id and each file, alone. After five seconds without the lock it is left.
for_each_gpu() {
    local action=$1 index
    [[ ${SLURM_JOB_ID-} =~ ^[0-9]+$ && -n ${job_mapping_dir-} ]] || return
    mkdir -p -m 0755 "$job_mapping_dir" || return
    {
        flock -w 5 9 || return
        while read -r index; do
            "$action" "$SLURM_JOB_ID" "$job_mapping_dir/$index"
        done < <(job_gpus)
    } 9>"$job_mapping_dir.lock"
}

add_job() {
    grep -qsxF "$1" "$2" || echo "$1" >>"$2"
}

remove_job() {
    local rest
    [ -f "$2" ] || return
    rest=$(grep -vxF "$1" "$2")
    if [ -n "$rest" ]; then printf '%s\n' "$rest" >"$2"; else rm -f "$2"; fi
}
