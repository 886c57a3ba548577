"""A server with workers under load, during an operator's actions and simulated accidents.

``python -m tests.stress.served --seconds 60 --seed 5 --backend uring``; a failure prints the seed.

| file | content |
| --- | --- |
| ``application`` | the ASGI application: bytes with predictable content |
| ``verifying_clients`` | clients of each HTTP implementation |
| ``client`` | a process with such clients, which is killed |
| ``hang_report`` | a process's tasks and connections while a request hangs |
| ``operator`` | the server's processes, and the operator's actions on them |
| ``trial`` | phases: load, one fault each, and the rules that always hold |
"""
