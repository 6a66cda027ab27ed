import test from 'ava';
import {
  disagreement,
  folderFact,
  isOfOriginal,
  noRedis,
  otherStorage,
  othersHaveKey,
  secretFact,
} from '../../src/instances/agreement.ts';
import type { Facts, Instance } from '../../src/instances/instances.ts';
import { relayAdvice } from '../../src/instances/open.ts';

// What is compared between instances. `agreement.long.test.ts` has whole servers.

const facts: Facts = { storage: 's3 https://s3.test one two', secret: null, redis: null, databaseNode: null };

function instance(id: string, changes: Partial<Instance> = {}): Instance {
  const times = { startedAt: 1, seenAt: 1, isLive: true };
  return { ...facts, ...times, id, name: id, address: `${id}:1`, version: '1.0.0', folder: 'folder', ...changes };
}

const compared = (own: Partial<Facts>, other: Partial<Facts>) =>
  disagreement({ ...facts, ...own }, [instance('same', own), instance('other', other)]);

test('the first fact that differs is named with its setting, and what is not known is not compared', (t) => {
  t.is(compared({}, {}), undefined);
  t.is(compared({ redis: 'a', databaseNode: null }, { redis: null, databaseNode: 'b' }), undefined);
  const messages: [own: Partial<Facts>, other: Partial<Facts>, message: RegExp, mayEnd: boolean][] = [
    [{}, { storage: 'folder x.1' }, /^ENTREPOT_STORAGE_DRIVER: .*\(s3 https:\/\/s3\.test one two, a folder\)/, false],
    [{ storage: 'folder x.1' }, { storage: 'folder x.2' }, /^ENTREPOT_DATA: .*different storages/, false],
    [{}, { storage: 's3 https://s3.example one two' }, /^ENTREPOT_STORAGE_S3_ENDPOINT: /, false],
    [{}, { storage: 's3 https://s3.test other two' }, /^ENTREPOT_STORAGE_S3_BUCKET: /, false],
    [{}, { storage: 's3 https://s3.test one other' }, /^ENTREPOT_STORAGE_S3_PREFIX: /, false],
    [{ secret: 'webhooks:a' }, { secret: 'webhooks:b' }, /^ENTREPOT_SECRET_KEY_FILE: .*different keys/, false],
    [
      { secret: 'webhooks:a internal:c' },
      { secret: 'webhooks:a internal:d' },
      /^ENTREPOT_INTERNAL_SECRET_FILE: .*different keys/,
      false,
    ],
    [{ redis: 'a' }, { redis: 'b' }, /^ENTREPOT_REDIS_URL: this server and the live server other use different/, true],
    [{ redis: noRedis }, { redis: 'b' }, /^ENTREPOT_REDIS_URL: the live server other uses a Redis/, true],
    [{ redis: 'a' }, { redis: noRedis }, /^ENTREPOT_REDIS_URL: the live server other uses no Redis/, true],
    [
      { databaseNode: 'one' },
      { databaseNode: 'two' },
      /^ENTREPOT_DATABASE_URL: this server writes to the Galera node one, and the live server other to two/,
      true,
    ],
  ];
  for (const [own, other, message, mayEnd] of messages) {
    const found = compared(own, other)!;
    t.regex(found.message, message);
    t.is(found.mayEnd, mayEnd, found.message);
    t.is(found.other.id, 'other');
  }
});

test('of the secrets of two instances, only those are compared that both have', (t) => {
  t.is(secretFact({ webhooks: undefined, internal: undefined }), null);
  const [both, webhooks, internal] = [
    secretFact({ webhooks: 'a', internal: 'b' }),
    secretFact({ webhooks: 'a', internal: undefined }),
    secretFact({ webhooks: undefined, internal: 'b' }),
  ];
  t.deepEqual([both, webhooks, internal], ['webhooks:a internal:b', 'webhooks:a', 'internal:b']);
  for (const own of [both, webhooks, internal])
    for (const other of [both, webhooks, internal])
      t.is(disagreement({ ...facts, secret: own }, [instance('other', { secret: other })]), undefined);
});

test('an instance lacks a key if another one has a key that it has not', (t) => {
  const [none, internal, a, b] = [
    instance('none'),
    instance('internal', { secret: 'internal:a' }),
    instance('a', { secret: 'webhooks:a internal:x' }),
    instance('b', { secret: 'internal:x webhooks:b' }),
  ];
  t.false(othersHaveKey('none', [none, internal]));
  t.true(othersHaveKey('none', [none, a]));
  t.true(othersHaveKey('internal', [internal, a]));
  t.true(othersHaveKey('a', [a, b]));
  t.false(othersHaveKey('a', [a, none, internal]));
  t.false(othersHaveKey('a', [a, instance('same', { secret: 'webhooks:a' })]));
});

test('a server on a copy of the SQLite file is no server of this database', (t) => {
  const own = folderFact('x', 1n, 10n);
  const [original, same] = [folderFact('x', 2n, 11n), folderFact('x', 2n, 10n)];
  t.true(isOfOriginal(own, original));
  t.false(isOfOriginal(own, same));
  t.false(isOfOriginal(own, folderFact('x', 2n)), 'not with MySQL');
  t.false(isOfOriginal(null, original));
  t.false(isOfOriginal(own, null));
  t.is(disagreement({ ...facts, storage: own }, [instance('other', { storage: original })]), undefined);
  t.regex(disagreement({ ...facts, storage: own }, [instance('other', { storage: same })])!.message, /^ENTREPOT_DATA:/);
});

test('a command with another storage than the servers names the setting', (t) => {
  t.regex(otherStorage('folder x.1', 's3 aws one '), /^ENTREPOT_STORAGE_DRIVER: .*\(s3 aws one \) than .*\(a folder\)/);
  t.regex(
    otherStorage('s3 aws one ', 's3 aws two '),
    /^ENTREPOT_STORAGE_S3_BUCKET: .*\(s3 aws two \).*\(s3 aws one \)/,
  );
});

const unreachable = (each: Instance) => ({ ...each, address: null });

test('instances with several data folders are advised to reach each other', (t) => {
  const [one, two] = [instance('one', { folder: 'x' }), instance('two', { folder: 'y' })];
  t.is(relayAdvice([one, two]), undefined);
  t.is(relayAdvice([unreachable(one), unreachable({ ...two, folder: 'x' })]), undefined);
  t.regex(relayAdvice([one, unreachable(two)])!, /have 2 data folders, and other instances cannot reach two: /);
});
