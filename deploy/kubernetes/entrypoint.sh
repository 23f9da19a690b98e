#!/bin/sh
# What a container runs: Spark starts executors with the word `executor` and a driver that was submitted with
# `driver`, and tells the rest in the environment; anything else is a command, such as `elastream run ...`.
set -eu

spark=$(python -c 'from pyspark.find_spark_home import _find_spark_home as home; print(home())')

case "${1:-}" in
executor)
  # each option of Java is a variable of its own, numbered in their order
  set --
  number=0
  while eval "option=\${SPARK_JAVA_OPT_$number:-}" && [ -n "$option" ]; do
    set -- "$@" "$option"
    number=$((number + 1))
  done
  exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$spark/conf}:$spark/jars/*:${SPARK_EXTRA_CLASSPATH:-}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
driver)
  shift
  exec "$spark/bin/spark-submit" --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
*)
  exec "$@"
  ;;
esac
