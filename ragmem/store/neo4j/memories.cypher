// Memories and profiles: see `ragmem.store`.
//
// A memory is linked to the turns that it comes from (REMEMBERS, with the quote and its position)
// and to those that it superseded (SUPERSEDES: the reverse of `supersededBy`). Evidence without a
// turn in this store is on the memory itself, as JSON. `sessionIds` are the sessions of all of its
// evidence. Its vector is its own property: memories have no search entries. Whoever changes
// memories holds the lock of the vectors, so that changes don't interleave.
//
// Times are read as text: the driver takes 0.1 ms for each of its own.

// :memories
/* which */
CALL (m) {
  MATCH (t:ConversationTurn)-[r:REMEMBERS]->(m)
  RETURN collect(r{.*, turnId: t.uuid, at: toString(r.at)}) AS said
}
RETURN collect(m{
  .*, vector: null, embedding: null, vectorsDue: null, createdAt: toString(m.createdAt),
  updatedAt: toString(m.updatedAt), at: toString(m.at), expiresAt: toString(m.expiresAt),
  validUntil: toString(m.validUntil), said: said
}) AS found;

// :memories_revision
OPTIONAL MATCH (v:RagmemSchema {name: 'ragmem'})
RETURN coalesce(v.memoriesRevision, 0) AS found;

// :memories_changed
// Once per transaction that changes memories, after all other locks.
MATCH (v:RagmemSchema {name: 'ragmem'})
SET v.memoriesRevision = coalesce(v.memoriesRevision, 0) + 1;

// :everywhere
MATCH (m:Memory)
WHERE m.createdAt IS NOT NULL AND ($owner = '' OR m.scope = 'project' OR m.owner = $owner)
  /* conditions */
WITH m
ORDER BY m.createdAt DESC, m.uuid DESC
LIMIT $limit

// :in_scope
CALL () {
  UNWIND $project_ids AS given
  OPTIONAL MATCH (p:Project {projectId: given})
  WITH DISTINCT coalesce(p.joinedInto, given) AS id
  MATCH (m:Memory)
  WHERE m.projectId = id /* conditions */
  RETURN m
  UNION ALL
  MATCH (m:Memory)
  WHERE $user_wide AND m.scope = 'user' AND ($owner = '' OR m.owner = $owner) /* conditions */
  RETURN m
}
WITH m
ORDER BY m.createdAt DESC, m.uuid DESC
LIMIT $limit

// :by_id
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
WHERE ($owner = '' OR m.scope = 'project' OR m.owner = $owner)

// :by_reference
MATCH (m:Memory)
WHERE replace(m.uuid, '-', '') ENDS WITH $reference
  AND ($owner = '' OR m.scope = 'project' OR m.owner = $owner)
WITH m
ORDER BY m.createdAt DESC, m.uuid DESC
LIMIT $limit

// :superseded
MATCH (:Memory {uuid: $id})-[:SUPERSEDES*1..]->(m:Memory)
WHERE m.uuid <> $id AND ($owner = '' OR m.scope = 'project' OR m.owner = $owner)
WITH DISTINCT m

// :small_vectors_of_memories
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
WHERE m.embedder = $embedder
RETURN collect(m.uuid) AS ids, collect(m.vector) AS vectors;

// :small_vectors_of_sessions
UNWIND $ids AS id
MATCH (s:ConversationSession {sessionId: id})
WHERE s.summaryEmbedder = $embedder
RETURN collect(s.sessionId) AS ids, collect(s.summaryVector) AS vectors;

// :memory_ages
MATCH (m:Memory)
WITH m
ORDER BY m.createdAt, m.uuid
RETURN collect([m.uuid, m.supersededBy]) AS found;

// :profile
MATCH (u:UserProfile {userId: $owner})
RETURN u.profileJson AS json, u.updatedAt AS at;

// :profile_owners
MATCH (u:UserProfile)
WITH u.userId AS owner ORDER BY owner
RETURN collect(owner) AS found;

// :put_owner
MERGE (o:Owner {ownerId: $owner})
WITH o
WHERE o.updatedAt IS NULL OR NOT $at < o.updatedAt <= $horizon
SET o.name = $name, o.updatedAt = $at;

// :owners
MATCH (o:Owner)
WITH o ORDER BY o.ownerId
RETURN collect(o{.*}) AS found;

// :take_sessions
// Records from before stores knew owners belong to the first owner who opens the store.
MATCH (s:ConversationSession)
WHERE s.owner IS NULL
SET s.owner = $owner;

// :take_memories
MATCH (m:Memory)
WHERE m.owner IS NULL
SET m.owner = $owner;

// :take_profile
MATCH (u:UserProfile {userId: 'local'})
SET u.userId = $owner;

// :sessions_of_turns
UNWIND $ids AS id
MATCH (t:ConversationTurn {uuid: id})
RETURN collect([t.uuid, t.sessionId]) AS found;

// :lock_projects
UNWIND $ids AS id
MATCH (p:Project {projectId: id})
SET p.revision = randomUUID();

// :not_theirs
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
WHERE NOT ($owner = '' OR m.scope = 'project' OR m.owner = $owner)
RETURN collect(m.uuid) AS found;

// :put_memories
UNWIND $memories AS given
OPTIONAL MATCH (own:Project {projectId: given.joinedFrom})
WITH given, coalesce(own.projectId, given.projectId) AS ownId
OPTIONAL MATCH (p:Project {projectId: ownId})
WITH given, ownId, coalesce(p.joinedInto, ownId) AS projectId
MERGE (m:Memory {uuid: given.memoryId})
WITH m, given, ownId, projectId,
     m.content = given.properties.content AND m.subjects = given.properties.subjects AS same
FOREACH (_ IN CASE WHEN same THEN [] ELSE [1] END |
  REMOVE m.vector, m.embedding, m.embedding_hash, m.embedder, m.dimension
)
SET m += given.properties,
    m.joinedFrom = CASE
      WHEN projectId <> ownId THEN ownId WHEN m.projectId = projectId THEN m.joinedFrom END,
    m.projectId = projectId,
    m.owner = coalesce(m.owner, given.owner),
    m.validUntil = CASE WHEN m.supersededBy IS NULL THEN given.validUntil ELSE m.validUntil END,
    m.supersededBy = coalesce(m.supersededBy, given.supersededBy),
    m.evidence = given.evidence,
    m.sessionIds = given.sessionIds;

// :supersede
// Only current ones: otherwise two could supersede each other.
MATCH (m:Memory {uuid: $id})
WHERE m.supersededBy IS NULL
UNWIND $olds AS old_id
MATCH (old:Memory {uuid: old_id})
WHERE old <> m AND old.supersededBy IS NULL
  AND ($owner = '' OR old.scope = 'project' OR old.owner = $owner)
SET old.supersededBy = m.uuid, old.validUntil = m.createdAt
MERGE (m)-[:SUPERSEDES]->(old);

// :link_superseded
// Links to predecessors, and to the successor, whichever of them was stored first.
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
CALL (m) {
  MATCH (by:Memory {uuid: m.supersededBy})
  MERGE (by)-[:SUPERSEDES]->(m)
}
CALL (m) {
  MATCH (old:Memory {supersededBy: m.uuid})
  MERGE (m)-[:SUPERSEDES]->(old)
};

// :forget_evidence
UNWIND $ids AS id
MATCH ()-[r:REMEMBERS]->(:Memory {uuid: id})
DELETE r;

// :put_evidence
UNWIND $evidence AS given
MATCH (t:ConversationTurn {uuid: given.turnId})
MATCH (m:Memory {uuid: given.memoryId})
CREATE (t)-[r:REMEMBERS]->(m)
SET r = given.properties;

// :note_vectors_due
// Of memories and of sessions; other ids are ignored.
UNWIND $ids AS id
CALL (id) {
  MATCH (m:Memory {uuid: id})
  SET m.vectorsDue = CASE WHEN m.supersededBy IS NULL AND m.vector IS NULL THEN m.updatedAt END
}
CALL (id) {
  MATCH (s:ConversationSession {sessionId: id})
  FOREACH (_ IN CASE WHEN coalesce(s.summary, '') = '' THEN [1] ELSE [] END |
    REMOVE s.summaryVector, s.summaryEmbedding, s.summaryEmbeddingHash, s.summaryEmbedder,
           s.summaryDimension
  )
  SET s.summaryVectorsDue = CASE
    WHEN coalesce(s.summary, '') <> '' AND s.summaryVector IS NULL
    THEN coalesce(s.lastActivity, s.updatedAt) END
};

// :forget_summary_vectors
UNWIND $ids AS id
MATCH (s:ConversationSession {sessionId: id})
REMOVE s.summaryVector, s.summaryEmbedding, s.summaryEmbeddingHash, s.summaryEmbedder,
       s.summaryDimension;

// :summaries_of_sessions
UNWIND $ids AS id
MATCH (s:ConversationSession {sessionId: id})
RETURN collect([s.sessionId, coalesce(s.summary, '')]) AS found;

// :put_memory_vectors
UNWIND $rows AS given
MATCH (m:Memory {uuid: given.recordId})
SET m.vector = given.vector,
    m.embedding = given.embedding,
    m.embedding_hash = given.textHash,
    m.embedder = $embedder,
    m.dimension = $dimension,
    m.vectorsDue = null;

// :put_summary_vectors
UNWIND $rows AS given
MATCH (s:ConversationSession {sessionId: given.recordId})
WHERE coalesce(s.summary, '') <> ''
SET s.summaryVector = given.vector,
    s.summaryEmbedding = given.embedding,
    s.summaryEmbeddingHash = given.textHash,
    s.summaryEmbedder = $embedder,
    s.summaryDimension = $dimension,
    s.summaryVectorsDue = null;

// :drop_foreign_memory_vectors
MATCH (v:RagmemSchema {name: 'ragmem'})
MATCH (m:Memory)
WHERE m.vector IS NOT NULL AND (m.embedder <> v.embedder OR m.dimension <> v.dimension)
WITH m, v LIMIT $limit
REMOVE m.vector, m.embedding, m.embedding_hash, m.embedder, m.dimension
SET m.vectorsDue = CASE WHEN m.supersededBy IS NULL THEN m.updatedAt END,
    v.memoriesRevision = coalesce(v.memoriesRevision, 0) + 1
RETURN collect(m.uuid) AS found;

// :drop_foreign_summary_vectors
MATCH (v:RagmemSchema {name: 'ragmem'})
MATCH (s:ConversationSession)
WHERE s.summaryVector IS NOT NULL
  AND (s.summaryEmbedder <> v.embedder OR s.summaryDimension <> v.dimension)
WITH s LIMIT $limit
REMOVE s.summaryVector, s.summaryEmbedding, s.summaryEmbeddingHash, s.summaryEmbedder,
       s.summaryDimension
SET s.summaryVectorsDue = coalesce(s.lastActivity, s.updatedAt)
RETURN collect(s.sessionId) AS found;

// :mark_extracted
UNWIND $ids AS id
MATCH (t:ConversationTurn {uuid: id})
REMOVE t.memoriesDue;

// :lock_profile
MERGE (u:UserProfile {userId: $owner})
SET u.revision = randomUUID();

// :put_profile
MATCH (u:UserProfile {userId: $owner})
SET u.profileJson = $json,
    u.updatedAt = CASE WHEN u.updatedAt > $at THEN u.updatedAt ELSE $at END;

// :what_is_json
CALL () {
  MATCH (u:UserProfile)
  RETURN collect(u.profileJson) AS profiles
}
CALL () {
  MATCH (m:Memory)
  WHERE size(m.evidence) > 0
  RETURN collect([m.uuid, m.evidence]) AS evidence
}
RETURN profiles, evidence;

// :chains
UNWIND $ids AS id
MATCH (first:Memory {uuid: id})-[:SUPERSEDES*0..]->(m:Memory)
WHERE ($owner = '' OR m.scope = 'project' OR m.owner = $owner)
  AND ($owner = '' OR first.scope = 'project' OR first.owner = $owner)
RETURN collect(DISTINCT m.uuid) AS found;

// :forget_memories
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
DETACH DELETE m;

// :forget_leases
UNWIND $ids AS id
MATCH (l:Lease {key: 'vectors:-1:' + id})
DELETE l;

// :memories_of_session
MATCH (m:Memory)
WHERE $sessionId IN m.sessionIds
   OR EXISTS { (:ConversationTurn {sessionId: $sessionId})-[:REMEMBERS]->(m) }
CALL (m) {
  MATCH (t:ConversationTurn)-[r:REMEMBERS]->(m)
  WHERE coalesce(r.sessionId, '') <> $sessionId AND t.sessionId <> $sessionId
  RETURN collect(r.sessionId) AS elsewhere
}
RETURN collect([m.uuid, elsewhere, m.evidence]) AS found;

// :keep_memories
UNWIND $kept AS given
MATCH (m:Memory {uuid: given.memoryId})
SET m.evidence = given.evidence, m.sessionIds = given.sessionIds
WITH m
MATCH (t:ConversationTurn)-[r:REMEMBERS]->(m)
WHERE r.sessionId = $sessionId OR t.sessionId = $sessionId
DELETE r;

// :successors
UNWIND $ids AS id
MATCH (m:Memory {uuid: id})
RETURN collect([m.uuid, m.supersededBy]) AS found;

// :superseded_by_these
MATCH (old:Memory)
WHERE old.supersededBy IN $ids AND NOT old.uuid IN $ids
RETURN collect([old.uuid, old.supersededBy]) AS found;

// :succeed
// A memory whose successor is deleted gets the next one, or is current again.
UNWIND $rows AS given
MATCH (old:Memory {uuid: given.id})
SET old.supersededBy = given.by,
    old.validUntil = CASE WHEN given.by IS NULL THEN null ELSE old.validUntil END;

// :sessions_to_embed
MATCH (s:ConversationSession)
WHERE s.summary IS NOT NULL AND s.summary <> ''
  AND s.summaryVector IS NULL AND s.summaryVectorsDue IS NULL
RETURN collect(s.sessionId) AS found;
