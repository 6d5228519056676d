// What the tests need of the original's interface, for thriftpy2: numbers and types of its fields.

struct Nil {}

union Value {
    1: Nil nl
    2: bool b
    3: i64 i
    4: double flt
    5: string str
    6: binary bin
    7: map<Value, Value> obj
    8: list<Value> arr
}

struct MachineEvent {
    1: required string source_ns
    2: required string source_id
    3: required i64 event_id
    4: required string created_at
    5: optional i32 format_version
    6: required Value data
}

union SinkEvent {
    1: MachineEvent event
}

struct Working {}

struct Failed {
    1: optional string reason
}

union Status {
    1: Working working
    2: Failed failed
}

struct Created {}

struct StatusChanged {
    1: required Status new_status
}

struct Removed {}

union MachineChange {
    1: Created created
    2: StatusChanged status_changed
    3: Removed removed
}

union LifecycleData {
    1: MachineChange machine
}

struct LifecycleEvent {
    1: required string machine_ns
    2: required string machine_id
    3: required string created_at
    4: required LifecycleData data
}
