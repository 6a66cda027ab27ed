import { DomainError } from '../runtime/errors.ts';

/** Seconds after which a client may try again. */
const retryAfter = 5;

/** Of MySQL and MariaDB: this server takes no writes. After a failover it can go on to answer, while another one takes them. */
const replacedCodes = new Set([
  1047, // ER_UNKNOWN_COM_ERROR: a node of Galera that does not belong to the cluster now
  1290, // ER_OPTION_PREVENTS_STATEMENT: the database is read-only
  1792, // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
  1836, // ER_READ_ONLY_MODE
  3100, // ER_RUN_HOOK_ERROR: a member of a group without a majority
]);

/** Of MySQL and MariaDB: the database answers that it cannot do the work now. */
const mysqlCodes = new Set([
  1026, // ER_ERROR_ON_WRITE
  1030, // ER_GET_ERRNO: the storage engine got an error of the operating system
  1036, // ER_OPEN_AS_READONLY
  1040, // ER_CON_COUNT_ERROR
  1053, // ER_SERVER_SHUTDOWN
  1194, // ER_CRASHED_ON_USAGE
  1205, // ER_LOCK_WAIT_TIMEOUT
  1213, // ER_LOCK_DEADLOCK
  1317, // ER_QUERY_INTERRUPTED
  1712, // ER_INDEX_CORRUPT
  1927, // ER_CONNECTION_KILLED
  1969, // ER_STATEMENT_TIMEOUT of MariaDB
  3024, // ER_QUERY_TIMEOUT of MySQL
]);

/** Errors of the connection. */
const networkCodes = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'PROTOCOL_CONNECTION_LOST',
]);

/** Primary result codes of SQLite (https://sqlite.org/rescode.html). */
const sqliteReasons = new Map([
  [5, 'The database is locked by another process.'], // SQLITE_BUSY
  [8, 'The database cannot be written.'], // SQLITE_READONLY
  [10, 'The disk of the database has failed.'], // SQLITE_IOERR
  [11, 'The file of the database is damaged.'], // SQLITE_CORRUPT
  [14, 'The file of the database cannot be opened.'], // SQLITE_CANTOPEN
  [15, 'The database is locked by another process.'], // SQLITE_PROTOCOL
  [26, 'The file of the database is damaged.'], // SQLITE_NOTADB
]);

/** The reason when there is no connection. */
export const unreachable = 'The database cannot be reached.';

/** Whether an error of the MySQL driver says that another server may take the writes now. */
export function mayBeReplaced(error: unknown): boolean {
  return replacedCodes.has((error as { errno?: number } | null)?.errno ?? 0);
}

/** `DatabaseUnavailable`, for the reason in `message`. */
export function databaseUnavailable(message: string, cause?: unknown): DomainError {
  return new DomainError('DatabaseUnavailable', message, { cause, retryAfter });
}

/** `DatabaseUnavailable` for an error of a database that cannot be used now; any other error unchanged. */
export function databaseFailure(error: unknown): unknown {
  const reason = reasonOf(error);
  return reason === undefined ? error : databaseUnavailable(reason, error);
}

function reasonOf(error: unknown): string | undefined {
  const { parent } = error as { parent?: unknown };
  const { code, errno, errcode, fatal } = (parent ?? error) as {
    code?: unknown;
    errno?: number;
    errcode?: number;
    fatal?: boolean;
  };
  // The low byte of a result code of SQLite is its primary code.
  if (typeof errcode === 'number') return sqliteReasons.get(errcode % 256);
  // Other errors of the system may come from the work inside a transaction, not from the database.
  if (parent === undefined) return undefined;
  if (code === 'ETIMEDOUT') return 'The database has not answered in time.';
  if (fatal === true || networkCodes.has(String(code))) return unreachable;
  return mysqlCodes.has(errno ?? 0) || replacedCodes.has(errno ?? 0) ? 'The database cannot do this now.' : undefined;
}
