import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { sentinelPlace } from '../../src/cache/sentinel.ts';
import { ConfigError, loadConfig, type Environment } from '../../src/config/load.ts';
import { openDatabase } from '../../src/database/database.ts';
import { readProxies } from '../../src/upstream/configured.ts';
import { emptyDatabase, openUntilEnd } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { CommandLine } from '../support/processes/command.ts';

const encoded = { '#': '%23', '/': '%2F', '?': '%3F', '\\': '%5C', '%': '%25' };

function refused(t: { throws: (run: () => void, expected: object) => Error }, environment: Environment): string {
  return t.throws(() => loadConfig(environment), { instanceOf: ConfigError }).message;
}

test('a character of a password that must be percent-encoded is named with its code, and the password is not shown', (t) => {
  for (const [character, code] of Object.entries(encoded)) {
    for (const [key, url] of [
      ['ENTREPOT_DATABASE_URL', `mysql://me:pa${character}sSECRET@db.test:3306/entrepot`],
      ['ENTREPOT_DATABASE_URL', `mariadb://m${character}e:SECRET@db.test/entrepot`],
      ['ENTREPOT_REDIS_URL', `redis://:pa${character}sSECRET@cache.test:6379/1`],
      ['ENTREPOT_REDIS_URL', `rediss://me:${character}SECRET@cache.test`],
    ] as const) {
      const message = refused(t, { [key]: url });
      const expected = `${key}: the user name or password has a character that must be percent-encoded: write ${character} as ${code}`;
      t.is(message, expected, url);
    }
    const proxy = t.throws(() => readProxies({ HTTPS_PROXY: `http://me:pa${character}sSECRET@proxy.test:3128` }));
    t.true(proxy.message.endsWith(`: write ${character} as ${code}`), proxy.message);
    t.false(proxy.message.includes('SECRET'));
  }
  const several = refused(t, { ENTREPOT_DATABASE_URL: 'mysql://me:a#SECRET/%zz@db.test/entrepot' });
  t.true(several.endsWith(': write # as %23, / as %2F, % as %25'), several);
  const sentinel = refused(t, { ENTREPOT_REDIS_URL: 'redis+sentinel://:SEC/RET@one.test,two.test/main' });
  t.true(sentinel.endsWith(': write / as %2F'), sentinel);
});

test('the path of a SQLite database may have any character', (t) => {
  const url = 'sqlite:///srv/a@b/100%?#.db';
  t.is(loadConfig({ ENTREPOT_DATABASE_URL: url }).database.url, url);
});

test('a URL whose host or port cannot be right is refused without its password', (t) => {
  for (const url of [
    'mysql://me:SECRET@db.test:99999/entrepot',
    'mysql://me:SECRET@db.test:port/entrepot',
    'mysql://me:SECRET#',
    'mysql://me:SECRET',
  ]) {
    const message = refused(t, { ENTREPOT_DATABASE_URL: url });
    t.regex(message, /^ENTREPOT_DATABASE_URL: expected user:password@host:port .* write # as %23/, url);
    t.false(message.includes('SECRET'), url);
  }
  t.regex(refused(t, { ENTREPOT_REDIS_URL: 'redis://:SEC[RET@a:b:c' }), /^ENTREPOT_REDIS_URL: expected user:password/);
});

test('URLs that need no change are accepted', (t) => {
  for (const url of [
    'mysql://root@127.0.0.1:3306/entrepot',
    'mysql://me:pa%23ss%2F%3F%25@db.test/entrepot?ssl=%7B%7D',
    'mysql://me:p@ss:w!rd@db.test:3306/entrepot',
    'mariadb://me:p@[::1]:3306/entrepot',
    'mysql://me:p@/entrepot?socketPath=/run/mysqld/mysqld.sock',
    'sqlite:/srv/a#b@c.db',
  ]) {
    t.is(loadConfig({ ENTREPOT_DATABASE_URL: url }).database.url, url);
  }
  for (const url of [
    'redis://cache.test',
    'rediss://me:p%23@[::1]:6380/2',
    'redis+sentinel://:a#b@one,[::1]:5/main/3',
  ]) {
    t.is(loadConfig({ ENTREPOT_REDIS_URL: url }).redis.url, url);
  }
  t.like(sentinelPlace('redis+sentinel://me:p@ss@one/main'), { username: 'me', password: 'p@ss' });
});

test('a command with such a URL prints one line, and no warning of Node with the URL', async (t) => {
  const wrong: Record<string, string>[] = [
    { ENTREPOT_DATABASE_URL: 'mysql://me:pa#SECRET@127.0.0.1:1/entrepot' },
    { ENTREPOT_DATABASE_URL: 'mysql://me:pa?SECRET@127.0.0.1:1/entrepot' },
    { ENTREPOT_REDIS_URL: 'redis://:pa#SECRET@127.0.0.1:1' },
  ];
  for (const settings of wrong) {
    const commands = await CommandLine.create(t, settings);
    const { code, stdout, stderr } = await commands.run('token', 'list');
    const [key] = Object.keys(settings);
    t.deepEqual([code, stdout], [1, '']);
    t.regex(stderr, new RegExp(`^entrepot: ${key}: .* as %(?:23|3F)\\n$`));
  }
});

test('a password with encoded characters signs in', async (t) => {
  const root = await emptyDatabase(t, 'mysql');
  const { host, pathname } = new URL(root);
  const name = pathname.slice(1);
  const user = `u_${name}`.slice(0, 32);
  const admin = await openUntilEnd(t, root);
  await admin.transaction((tx) => tx.run(`CREATE USER '${user}'@'127.0.0.1' IDENTIFIED BY 'a#b/c%d@e'`));
  t.teardown(() => admin.transaction((tx) => tx.run(`DROP USER '${user}'@'127.0.0.1'`)));
  await admin.transaction((tx) => tx.run(`GRANT ALL ON \`${name}\`.* TO '${user}'@'127.0.0.1'`));
  const url = `mysql://${user}:a%23b%2Fc%25d%40e@${host}/${name}`;
  const database = await openDatabase(loadConfig({ ENTREPOT_DATABASE_URL: url }).database.url!);
  t.deepEqual(await database.select('SELECT 1 AS one'), [{ one: 1 }]);
  await database.close();
});

test('a mistake in the YAML of a secret is reported without the secret', async (t) => {
  const file = join(await folderUntilEnd(t), 'settings.yaml');
  const load = () => loadConfig({ ENTREPOT_CONFIG: file });
  for (const value of ['*SECRET', '!SECRET', '!!SECRET x', '}SECRET', '|SECRET', '"\\uSECRET"', '!e!SECRET x']) {
    await writeFile(file, `database:\n  url: ${value}\n`);
    const { message } = t.throws(load, { instanceOf: ConfigError });
    t.regex(message, /settings\.yaml.*: a value has characters .* put the value between single quotes$/, value);
    t.false(message.includes('SEC'), message);
  }
});
