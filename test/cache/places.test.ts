import test from 'ava';
import { TableVersions } from '../../src/cache/changes.ts';
import { namespaceOf } from '../../src/cache/namespace.ts';
import { sentinelPlace } from '../../src/cache/sentinel.ts';

// What needs no Redis. `changes.test.ts` and `sentinel.test.ts` have real ones.

test('the address of Sentinels has their ports, the name of the primary and its password', (t) => {
  const place = { username: undefined, password: undefined, database: 0 };
  t.deepEqual(sentinelPlace('redis+sentinel://one,two:5000,[::1]:5001/main'), {
    ...place,
    sentinels: [
      { host: 'one', port: 26_379 },
      { host: 'two', port: 5000 },
      { host: '::1', port: 5001 },
    ],
    name: 'main',
  });
  const user = { username: 'me', password: 'p@ss:word', database: 3 };
  t.like(sentinelPlace('redis+sentinel://me:p%40ss:word@one/ma%2Fin/3'), { ...user, name: 'ma/in' });
  t.deepEqual(sentinelPlace('redis+sentinel://a%3Ab:c%40:d@one:1,[::1]:2,two/the%2Fname/7'), {
    sentinels: [
      { host: 'one', port: 1 },
      { host: '::1', port: 2 },
      { host: 'two', port: 26_379 },
    ],
    name: 'the/name',
    username: 'a:b',
    password: 'c@:d',
    database: 7,
  });
  t.deepEqual(sentinelPlace('redis+sentinel://one/main'), {
    ...place,
    sentinels: [{ host: 'one', port: 26_379 }],
    name: 'main',
  });
  t.like(sentinelPlace('redis+sentinel://me:p%40ss:word@one/main/3'), user);
  t.like(sentinelPlace('redis+sentinel://:secret@one/main'), { username: undefined, password: 'secret' });
  t.like(sentinelPlace('redis+sentinel://user@one/main'), { username: 'user', password: undefined });
  for (const url of [
    'redis://one:6379/0',
    'redis://one/main',
    'xredis+sentinel://one/main',
    'redis+sentinel://one',
    'redis+sentinel://one/main/x',
  ])
    t.is(sentinelPlace(url), undefined, url);
});

test('the keys of an installation stay when the user or the password of its database changes', (t) => {
  const own = namespaceOf('mysql://me:secret@db.test:3306/entrepot', '/data');
  t.regex(own, /^entrepot-[0-9a-f]{12}$/);
  for (const same of ['mysql://db.test:3306/entrepot', 'mariadb://you:other@db.test:3306/entrepot'])
    t.is(namespaceOf(same, '/elsewhere'), own);
  const others = ['mysql://db.test:3306/other', 'mysql://other.test:3306/entrepot'];
  const names = [own, ...others.map((url) => namespaceOf(url, '/data')), namespaceOf(undefined, '/data')];
  t.is(new Set([...names, namespaceOf(undefined, '/other')]).size, 5);
});

const versionOf = (text: string, period: number, ...tables: string[]) => new TableVersions(text, period).of(tables);

const wholeOf = (text: string, period = 1) => new TableVersions(text, period).of(undefined);

test('the version of a table changes with its own writes, with those to any table, and with the time', (t) => {
  const before = versionOf('a;tags:b;blobs:c', 1, 'tags');
  t.is(versionOf('a;blobs:d;tags:b', 1, 'tags'), before, 'another table was written');
  t.not(versionOf('a;tags:x;blobs:c', 1, 'tags'), before);
  t.not(versionOf('x;tags:b;blobs:c', 1, 'tags'), before);
  t.not(versionOf('a;tags:b;blobs:c', 2, 'tags'), before);
  t.not(versionOf('a;tags:b;blobs:d', 1, 'tags', 'blobs'), versionOf('a;tags:b;blobs:c', 1, 'tags', 'blobs'));
  t.is(versionOf('a;tags:b', 1, 'none'), versionOf('a;tags:c', 1, 'none'), 'a table without a version of its own');
  t.not(versionOf('x', 1, 'none'), versionOf('a', 1, 'none'));
  t.is(wholeOf('a;tags:b'), wholeOf('a;tags:b'));
  t.not(wholeOf('a;tags:c'), wholeOf('a;tags:b'));
  t.not(wholeOf('a;tags:b', 2), wholeOf('a;tags:b'));
  const versions = new TableVersions('a;tags:b', 1);
  const tables = ['tags'];
  t.is(versions.of(tables), versions.of(tables));
});
