"""How fast the engine is, without the service: as ratios, or with a yardstick beside.

python -m bench.engine                              the table
python -m bench.engine --json engine.json           and the figures for programs
python -m bench.engine lookups --large-bytes 10e9   one measure, as large as for a release

logs.py       a log without the service around it, records to fill it with, and how much of it
appends.py    what a batch costs in the first segment and in the thousandth
lookups.py    an offset and a time, looked up in a large log and in a small one
recovery.py   the scan of an unclean tail, beside reading it and its checksum
opening.py    many partitions after a clean stop: seconds, and memory of each
"""
