import test from 'ava';
import { databaseFailure, mayBeReplaced } from '../../src/database/failure.ts';
import type { DomainError } from '../../src/runtime/errors.ts';

/** What Sequelize throws for an error of its driver. */
const wrapped = (parent: object) => Object.assign(new Error('wrapped'), { parent });

const nameOf = (error: unknown) => (databaseFailure(error) as Error).name;

test('errors of a database that cannot be used now are DatabaseUnavailable, with the reason and the time of the next try', (t) => {
  const [unreachable, busy] = ['The database cannot be reached.', 'The database cannot do this now.'];
  const [locked, damaged] = ['The database is locked by another process.', 'The file of the database is damaged.'];
  const network = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'EHOSTUNREACH', 'ENETUNREACH', 'PROTOCOL_CONNECTION_LOST'];
  for (const [parent, message] of [
    [{ errno: 1290, code: 'ER_OPTION_PREVENTS_STATEMENT' }, busy],
    [{ errno: 1047, code: 'ER_UNKNOWN_COM_ERROR' }, busy],
    [{ errno: 3100, code: 'ER_RUN_HOOK_ERROR' }, busy],
    [{ errno: 1205, code: 'ER_LOCK_WAIT_TIMEOUT' }, busy],
    [{ errno: 1969, code: 'ER_STATEMENT_TIMEOUT' }, busy],
    ...network.map((code) => [{ code }, unreachable] as const),
    [{ code: 'ETIMEDOUT' }, 'The database has not answered in time.'],
    [{ code: 'ETIMEDOUT', fatal: true }, 'The database has not answered in time.'],
    [{ code: 'HANDSHAKE_UNKNOWN_ERROR', fatal: true }, unreachable],
    [{ errcode: 5 }, locked],
    [{ errcode: 5 + 256, code: 'SQLITE_BUSY_RECOVERY' }, locked],
    [{ errcode: 15 }, locked],
    [{ errcode: 8 }, 'The database cannot be written.'],
    [{ errcode: 10 + 3 * 256, code: 'SQLITE_IOERR_WRITE' }, 'The disk of the database has failed.'],
    [{ errcode: 11 + 256, code: 'SQLITE_CORRUPT_VTAB' }, damaged],
    [{ errcode: 26 }, damaged],
    [{ errcode: 14 }, 'The file of the database cannot be opened.'],
  ] as const) {
    const cause = wrapped(parent);
    const failure = databaseFailure(cause) as DomainError;
    t.deepEqual(
      { name: failure.name, message: failure.message, cause: failure.cause, retryAfter: failure.retryAfter },
      { name: 'DatabaseUnavailable', message, cause, retryAfter: 5 },
      JSON.stringify(parent),
    );
  }
  // Reads of SQLite are not wrapped.
  t.is(nameOf(Object.assign(new Error('disk I/O error'), { errcode: 266 })), 'DatabaseUnavailable');
});

test('only a server that takes no writes may be replaced by another one', (t) => {
  for (const errno of [1047, 1290, 1792, 1836, 3100]) t.true(mayBeReplaced({ errno }), String(errno));
  for (const other of [{ errno: 1205 }, { code: 'ECONNRESET' }, {}, null, undefined]) t.false(mayBeReplaced(other));
});

test('a mistake, a conflict of rows, a full disk, and an error of the work inside a transaction are left as they are', (t) => {
  for (const error of [
    wrapped({ errno: 1064, code: 'ER_PARSE_ERROR' }),
    wrapped({ errno: 1062, code: 'ER_DUP_ENTRY' }),
    wrapped({ errno: 1021, code: 'ER_DISK_FULL' }),
    wrapped({ errno: 1114, code: 'ER_RECORD_FILE_FULL' }),
    wrapped({ errcode: 1 }),
    wrapped({ errcode: 13 }),
    wrapped({ errcode: 19 + 8 * 256 }),
    Object.assign(new Error('an upstream'), { code: 'ECONNRESET', errno: -104 }),
    Object.assign(new Error('an upstream'), { code: 'ETIMEDOUT' }),
    Object.assign(new Error('an upstream'), { code: 'ECONNREFUSED', fatal: true }),
  ]) {
    t.is(databaseFailure(error), error);
  }
});
