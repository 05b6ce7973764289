// Constraints and indexes. Every statement is idempotent; append, never rename. Only uniqueness:
// the Community edition has no existence constraints.

CREATE CONSTRAINT ragmem_schema_name IF NOT EXISTS FOR (n:RagmemSchema) REQUIRE n.name IS UNIQUE;
CREATE CONSTRAINT session_id IF NOT EXISTS FOR (n:ConversationSession) REQUIRE n.sessionId IS UNIQUE;
CREATE CONSTRAINT turn_uuid IF NOT EXISTS FOR (n:ConversationTurn) REQUIRE n.uuid IS UNIQUE;
CREATE CONSTRAINT tool_call_uuid IF NOT EXISTS FOR (n:ToolCall) REQUIRE n.uuid IS UNIQUE;
CREATE CONSTRAINT summary_uuid IF NOT EXISTS FOR (n:ConversationSummary) REQUIRE n.uuid IS UNIQUE;
CREATE CONSTRAINT project_id IF NOT EXISTS FOR (n:Project) REQUIRE n.projectId IS UNIQUE;
CREATE CONSTRAINT file_path IF NOT EXISTS FOR (n:File) REQUIRE (n.projectId, n.path) IS UNIQUE;
CREATE CONSTRAINT owner_id IF NOT EXISTS FOR (n:Owner) REQUIRE n.ownerId IS UNIQUE;

CREATE INDEX session_cwd IF NOT EXISTS FOR (n:ConversationSession) ON (n.cwd);
CREATE INDEX session_project IF NOT EXISTS FOR (n:ConversationSession) ON (n.projectId);
CREATE INDEX session_last_activity IF NOT EXISTS FOR (n:ConversationSession) ON (n.lastActivity);
CREATE INDEX session_title IF NOT EXISTS FOR (n:ConversationSession) ON (n.titleFolded);
CREATE INDEX turn_session IF NOT EXISTS FOR (n:ConversationTurn) ON (n.sessionId);
CREATE INDEX turn_order IF NOT EXISTS FOR (n:ConversationTurn) ON (n.sessionId, n.turnIndex);
CREATE INDEX turn_timestamp IF NOT EXISTS FOR (n:ConversationTurn) ON (n.timestamp);
CREATE INDEX turn_level IF NOT EXISTS FOR (n:ConversationTurn) ON (n.level);
CREATE INDEX turn_status IF NOT EXISTS FOR (n:ConversationTurn) ON (n.status);
CREATE INDEX summary_session IF NOT EXISTS FOR (n:ConversationSummary) ON (n.sessionId);
CREATE INDEX summary_timestamp IF NOT EXISTS FOR (n:ConversationSummary) ON (n.timestamp);
CREATE INDEX summary_level IF NOT EXISTS FOR (n:ConversationSummary) ON (n.level);

CREATE CONSTRAINT search_entry_record IF NOT EXISTS FOR (n:SearchEntry) REQUIRE n.recordId IS UNIQUE;
CREATE CONSTRAINT attempt_item IF NOT EXISTS FOR (n:Attempt) REQUIRE n.item IS UNIQUE;
CREATE CONSTRAINT lease_key IF NOT EXISTS FOR (n:Lease) REQUIRE n.key IS UNIQUE;
CREATE INDEX project_joined IF NOT EXISTS FOR (n:Project) ON (n.joinedInto);
CREATE INDEX session_roll_up_due IF NOT EXISTS FOR (n:ConversationSession) ON (n.rollUpDue);
CREATE INDEX summary_waits IF NOT EXISTS FOR (n:ConversationSummary) ON (n.waitsIn);
CREATE INDEX search_entry_place IF NOT EXISTS FOR (n:SearchEntry) ON (n.sessionId, n.turnIndex);
CREATE INDEX search_entry_number IF NOT EXISTS FOR (n:SearchEntry) ON (n.number);
CREATE INDEX search_entry_sequence IF NOT EXISTS FOR (n:SearchEntry) ON (n.sequence);
CREATE INDEX search_entry_project IF NOT EXISTS FOR (n:SearchEntry) ON (n.projectId, n.sequence);
CREATE INDEX search_entry_time IF NOT EXISTS FOR (n:SearchEntry) ON (n.projectId, n.at);
CREATE INDEX search_entry_vectors_due IF NOT EXISTS FOR (n:SearchEntry) ON (n.vectorsDue);
CREATE INDEX search_entry_summary_due IF NOT EXISTS FOR (n:SearchEntry) ON (n.summaryDue);
CREATE FULLTEXT INDEX search_terms IF NOT EXISTS FOR (n:SearchEntry) ON EACH [n.terms] OPTIONS {indexConfig: {`fulltext.analyzer`: 'whitespace'}};

CREATE CONSTRAINT memory_uuid IF NOT EXISTS FOR (n:Memory) REQUIRE n.uuid IS UNIQUE;
CREATE CONSTRAINT user_profile_id IF NOT EXISTS FOR (n:UserProfile) REQUIRE n.userId IS UNIQUE;
CREATE INDEX memory_project IF NOT EXISTS FOR (n:Memory) ON (n.projectId);
CREATE INDEX memory_scope IF NOT EXISTS FOR (n:Memory) ON (n.scope);
CREATE INDEX memory_created IF NOT EXISTS FOR (n:Memory) ON (n.createdAt);
CREATE INDEX memory_superseded_by IF NOT EXISTS FOR (n:Memory) ON (n.supersededBy);
CREATE INDEX memory_vectors_due IF NOT EXISTS FOR (n:Memory) ON (n.vectorsDue);
CREATE INDEX session_summary_vectors_due IF NOT EXISTS FOR (n:ConversationSession) ON (n.summaryVectorsDue);
CREATE INDEX turn_memories_due IF NOT EXISTS FOR (n:ConversationTurn) ON (n.memoriesDue);

CREATE CONSTRAINT process_id IF NOT EXISTS FOR (n:Process) REQUIRE n.ownerId IS UNIQUE;
CREATE INDEX session_owner IF NOT EXISTS FOR (n:ConversationSession) ON (n.owner, n.lastActivity);
CREATE INDEX memory_owner IF NOT EXISTS FOR (n:Memory) ON (n.owner);

CREATE CONSTRAINT scope_id IF NOT EXISTS FOR (n:Scope) REQUIRE n.scopeId IS UNIQUE;
CREATE CONSTRAINT code_project_id IF NOT EXISTS FOR (n:CodeProject) REQUIRE n.projectId IS UNIQUE;
CREATE INDEX scope_place IF NOT EXISTS FOR (n:Scope) ON (n.projectId, n.path);
CREATE INDEX scope_name IF NOT EXISTS FOR (n:Scope) ON (n.nameKey, n.projectId);
CREATE INDEX scope_tail IF NOT EXISTS FOR (n:Scope) ON (n.tailKey, n.projectId);
CREATE INDEX file_hash IF NOT EXISTS FOR (n:File) ON (n.projectId, n.hash);
CREATE INDEX search_entry_references_due IF NOT EXISTS FOR (n:SearchEntry) ON (n.projectId, n.referencesDue);
