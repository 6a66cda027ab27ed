import test from 'ava';
import { databaseFailure } from '../../src/database/failure.ts';

/** What Sequelize throws for an error of its driver. */
const wrapped = (parent: object) => Object.assign(new Error('wrapped'), { parent });

const nameOf = (error: unknown) => (databaseFailure(error) as Error).name;

test('errors of a database that cannot be used now are DatabaseUnavailable', (t) => {
  for (const parent of [
    { errno: 1290, code: 'ER_OPTION_PREVENTS_STATEMENT' },
    { errno: 1047, code: 'ER_UNKNOWN_COM_ERROR' },
    { errno: 3100, code: 'ER_RUN_HOOK_ERROR' },
    { errno: 1205, code: 'ER_LOCK_WAIT_TIMEOUT' },
    { errno: 1969, code: 'ER_STATEMENT_TIMEOUT' },
    { code: 'ECONNRESET' },
    { code: 'PROTOCOL_CONNECTION_LOST' },
    { code: 'HANDSHAKE_UNKNOWN_ERROR', fatal: true },
    { errcode: 5 },
    { errcode: 5 + 256, code: 'SQLITE_BUSY_RECOVERY' },
    { errcode: 10 + 3 * 256, code: 'SQLITE_IOERR_WRITE' },
    { errcode: 11 + 256, code: 'SQLITE_CORRUPT_VTAB' },
  ]) {
    t.is(nameOf(wrapped(parent)), 'DatabaseUnavailable', JSON.stringify(parent));
  }
  // Reads of SQLite are not wrapped.
  t.is(nameOf(Object.assign(new Error('disk I/O error'), { errcode: 266 })), 'DatabaseUnavailable');
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
