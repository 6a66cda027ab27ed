import type { Database, Queryable } from './database.ts';

/** What a MySQL server says about itself, as far as it matters to several instances. */
interface Engine {
  /** For an operator, such as `MariaDB 10.11.6 with Galera`. */
  name: string;
  /** Why this server cannot be used, and what to do. */
  problem: string | undefined;
  /** Why this server may not work. */
  doubt: string | undefined;
  /** The node of a Galera cluster; undefined for other servers. */
  node: string | undefined;
}

/** Connections that are asked for their node, for reads and for transactions. A balancer with two nodes shows both. */
const askedConnections = 4;

/** TiDB has locks of `GET_LOCK`, which migrations need, since this version. */
const oldestTidb = [6, 1] as const;

const names = [
  'version',
  'hostname',
  'port',
  'wsrep_on',
  'wsrep_node_name',
  'group_replication_group_name',
  'group_replication_single_primary_mode',
  'tidb_txn_mode',
];
const variablesSql = `SHOW VARIABLES WHERE Variable_name IN (${names.map((name) => `'${name}'`).join(', ')})`;

/**
 * Examines the MySQL server of `database`. Transactions here rely on row locks and `GET_LOCK`, which nodes of a cluster with
 * several writers do not share: two writers would both succeed, or one fails at its commit. Undefined for SQLite.
 */
export async function examineEngine(database: Database): Promise<Engine | undefined> {
  if (database.dialect === 'sqlite') return undefined;
  const variables = await readVariables(database);
  const version = variables.get('version') ?? '';
  const txnMode = variables.get('tidb_txn_mode');
  if (txnMode !== undefined) return tidb(version, txnMode);
  const name = version.includes('MariaDB') ? `MariaDB ${version.split('-', 1)[0]}` : `MySQL ${version}`;
  if (isOn(variables.get('wsrep_on'))) return galera(name, await nodesOf(database));
  const group = variables.get('group_replication_group_name');
  const single = variables.get('group_replication_single_primary_mode');
  const isMultiPrimary = single !== undefined && !isOn(single) && group !== '';
  const problem = isMultiPrimary
    ? 'the group replication of this database has several primaries (group_replication_single_primary_mode=OFF), which do not share locks. Run "SELECT group_replication_switch_to_single_primary_mode()", and use an address that leads to the primary'
    : undefined;
  return { name, problem, doubt: undefined, node: undefined };
}

function galera(name: string, nodes: ReadonlySet<string>): Engine {
  const [node] = nodes;
  const problem =
    nodes.size > 1
      ? `this address leads to several nodes of a Galera cluster at the same time (${[...nodes].sort().join(', ')}), which do not share locks. Use an address that leads to one node, and to another one only after a failure`
      : undefined;
  return { name: `${name} with Galera`, problem, doubt: undefined, node };
}

function tidb(version: string, txnMode: string): Engine {
  const number = /TiDB-v?(\d+)\.(\d+)/.exec(version);
  const [major, minor] = oldestTidb;
  const isOld = number !== null && Number(number[1]) * 1000 + Number(number[2]) < major * 1000 + minor;
  const problem =
    txnMode !== 'pessimistic'
      ? 'SELECT … FOR UPDATE of this TiDB takes no lock (tidb_txn_mode is not pessimistic). Run "SET GLOBAL tidb_txn_mode = \'pessimistic\'"'
      : isOld
        ? `this TiDB is older than ${oldestTidb.join('.')} and has no locks of GET_LOCK. Upgrade it`
        : undefined;
  const name = number ? `TiDB ${number[1]}.${number[2]}` : 'TiDB';
  return { name, problem, doubt: 'TiDB is not tested with this program', node: undefined };
}

/** The nodes that several connections lead to. */
async function nodesOf(database: Database): Promise<Set<string>> {
  const all = Promise.withResolvers<void>();
  let missing = askedConnections;
  // Each transaction waits for the others, because one after another would use the same connection.
  const askTogether = async (tx: Queryable) => {
    const node = await readNode(tx);
    missing -= 1;
    if (missing === 0) all.resolve();
    await all.promise;
    return node;
  };
  const asked = Array.from({ length: askedConnections }, () => [
    readNode(database),
    database.transaction(askTogether, { uncached: true }),
  ]).flat();
  try {
    return new Set(await Promise.all(asked));
  } finally {
    // After a failure, the others must not wait for it.
    all.resolve();
  }
}

/** Nodes on one machine differ by their port, and nodes in containers by their host name. */
async function readNode(from: Queryable): Promise<string> {
  const variables = await readVariables(from);
  const host = `${variables.get('hostname')}:${variables.get('port')}`;
  const name = variables.get('wsrep_node_name');
  return name && name !== variables.get('hostname') ? `${name} at ${host}` : host;
}

async function readVariables(from: Queryable): Promise<Map<string, string>> {
  const rows = await from.select<{ Variable_name: string; Value: string }>(variablesSql);
  return new Map(rows.map((row) => [row.Variable_name.toLowerCase(), row.Value]));
}

function isOn(value: string | undefined): boolean {
  return value === 'ON' || value === '1';
}
