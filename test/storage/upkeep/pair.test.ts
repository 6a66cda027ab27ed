import test, { type ExecutionContext } from 'ava';
import type { Database, Dialect } from '../../../src/database/database.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import {
  adopt,
  checkPair,
  checkTarget,
  markDatabase,
  markStorage,
  pairTarget,
  refuseForeign,
  setActiveStorage,
  activeStorage,
  hasIdentity,
  installationIdentity,
  pairRestored,
  refuseUnfinished,
  restoringIdentity,
  type Adopted,
  type WrongPair,
} from '../../../src/storage/upkeep/identity.ts';
import { changedDatabase, dialects, emptyDatabase, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';

// Which databases and storages belong together, on storages in memory. `identity.long.test.ts` has whole programs.

const content = Buffer.from('content');
const digest = digestOf(content);

async function emptyPair(t: ExecutionContext, dialect: Dialect) {
  return { database: await openUntilEnd(t, await temporaryDatabase(t, dialect)), driver: new MemoryDriver() };
}

const refuseWrites = () => Promise.reject(new Error('nothing is written'));

const addBlob = (database: Database, state = 'live') =>
  database.transaction((tx) => tx.insertNew('blobs', [{ digest, size: content.length, stored_at: 0, state }]));

const rowOf = (database: Database) =>
  database.get<{ identity: string; state: string }>('SELECT identity, state FROM storage_identity');

for (const dialect of dialects) {
  test(`${dialect}: a database starts only with its own storage`, async (t) => {
    const { database, driver } = await emptyPair(t, dialect);
    await checkPair(database, driver);
    const { identity, state } = (await rowOf(database))!;
    t.is(await driver.readIdentity(), identity);
    t.is(state, 'paired');
    await checkPair(changedDatabase(database, { transaction: refuseWrites }), driver);
    t.is((await rowOf(database))!.identity, identity);

    const unmounted = new MemoryDriver();
    await t.throwsAsync(checkPair(database, unmounted), { message: /^the storage of this database is not here/ });
    t.is(await unmounted.readIdentity(), undefined, 'nothing is written there');
    const other = new MemoryDriver();
    await other.writeIdentity('other');
    const wrong = await t.throwsAsync(checkPair(database, other), { message: /belong to different installations/ });
    t.deepEqual((wrong as unknown as { sides: string[] }).sides, ['storage', 'database']);
    t.is(await other.readIdentity(), 'other');

    const { database: foreign } = await emptyPair(t, dialect);
    await t.throwsAsync(checkPair(foreign, driver), { message: /^the storage belongs to another database/ });
    t.is(await rowOf(foreign), undefined);
    await t.throwsAsync(refuseForeign(driver), { message: /^the storage belongs to another database/ });
    await refuseForeign(new MemoryDriver());

    await t.throwsAsync(checkTarget(database, other), { message: /^the target of the copy belongs to another/ });
    await checkTarget(database, driver);
    await checkTarget(database, unmounted);
    await pairTarget(database, unmounted);
    await checkPair(database, unmounted);
    await adopt(database, other, () => undefined);
    await checkPair(database, other);
    t.not(await other.readIdentity(), 'other', 'neither fits its former partner');
  });

  test(`${dialect}: a database without content is refused beside files, until it is adopted`, async (t) => {
    const { database, driver } = await emptyPair(t, dialect);
    await checkPair(database, driver);
    await setActiveStorage(database, 'somewhere');
    const before = await driver.readIdentity();
    driver.damage(digest, content);
    await t.throwsAsync(checkPair(database, driver), {
      message: /^the database names no content, but the storage has/,
    });
    const found: Adopted[] = [];
    await adopt(database, driver, (each) => void found.push(each));
    t.deepEqual(found, [{ blobs: 0, missing: 0, files: 1, bytes: content.length, unknown: 1 }]);
    t.is(await driver.readIdentity(), before, 'the two had the same identity already');
    t.is(await activeStorage(database), undefined, 'the next server to start decides');
    await checkPair(database, driver);
    t.is((await rowOf(database))!.state, 'adopted', 'still no content');
    await addBlob(database);
    await checkPair(database, driver);
    t.is((await rowOf(database))!.state, 'paired');
    await database.transaction((tx) => tx.run('DELETE FROM blobs'));
    await t.throwsAsync(checkPair(database, driver), { message: /^the database names no content/ });

    const { database: newer } = await emptyPair(t, dialect);
    await t.throwsAsync(checkPair(newer, driver), { message: /another database/ });
    await addBlob(newer);
    await addBlob(newer, 'pending');
    await adopt(newer, driver, (each) => void found.push(each));
    t.deepEqual(found[1], { blobs: 1, missing: 0, files: 1, bytes: content.length, unknown: 0 });
    t.not(await driver.readIdentity(), before, 'the former database does not fit any more');
    t.is((await rowOf(newer))!.state, 'paired');
    await checkPair(newer, driver);
  });

  test(`${dialect}: an installation of before identities needs some of its files`, async (t) => {
    const { database, driver } = await emptyPair(t, dialect);
    await addBlob(database);
    await t.throwsAsync(checkPair(database, driver), { message: /^the storage has none of the content/ });
    t.deepEqual([await rowOf(database), await driver.readIdentity()], [undefined, undefined]);
    driver.damage(digest, content);
    await checkPair(database, driver);
    t.is(await driver.readIdentity(), (await rowOf(database))!.identity);
  });

  test(`${dialect}: nothing starts in the middle of a restore`, async (t) => {
    const { database, driver } = await emptyPair(t, dialect);
    const unfinished = { message: /^a restore into this place is not finished/ };
    await markStorage(driver, undefined);
    await t.throwsAsync(checkPair(database, driver), unfinished);
    await t.throwsAsync(refuseForeign(driver), unfinished);
    await t.throwsAsync(
      adopt(database, driver, () => t.fail()),
      unfinished,
    );
    await t.throwsAsync(checkTarget(database, driver), unfinished);
    await markStorage(driver, undefined);
    await database.transaction(markDatabase);
    const other = new MemoryDriver();
    await t.throwsAsync(checkPair(database, other), unfinished);
    await t.throwsAsync(
      adopt(database, other, () => t.fail()),
      unfinished,
    );

    const notEmpty = { message: /^the storage is not empty/ };
    await other.writeIdentity('other');
    await t.throwsAsync(markStorage(other, 'earlier'), notEmpty);
    await markStorage(other, 'other');
    const filled = new MemoryDriver();
    filled.damage(digest, content);
    await t.throwsAsync(markStorage(filled, undefined), notEmpty);
  });

  test(`${dialect}: a second process with another storage waits for the identity of the first one`, async (t) => {
    const { database, driver } = await emptyPair(t, dialect);
    await database.transaction((tx) => tx.insertNew('storage_identity', [{ id: 1, identity: 'made', state: 'new' }]));
    let reads = 0;
    const watched = changedDatabase(database, {
      get: async (sql, values) => {
        if (/FROM storage_identity/.test(sql) && (reads += 1) === 3)
          await database.transaction((tx) => tx.run("UPDATE storage_identity SET state = 'paired'"));
        return database.get(sql, values);
      },
    });
    await t.throwsAsync(checkPair(watched, driver), { message: /^the storage of this database is not here/ });
    t.is(await driver.readIdentity(), undefined);
  });
}

/** A database and a storage that belong together. */
async function paired(t: ExecutionContext) {
  const pair = await emptyPair(t, 'sqlite');
  await checkPair(pair.database, pair.driver);
  return { ...pair, identity: await installationIdentity(pair.database) };
}

const marked = async (identity: string) => {
  const driver = new MemoryDriver();
  await driver.writeIdentity(identity);
  return driver;
};

test('each refusal names the sides that may be wrong, and the commands that help', async (t) => {
  const { database, driver, identity } = await paired(t);
  const { database: empty } = await emptyPair(t, 'sqlite');
  const { database: unmarked } = await emptyPair(t, 'sqlite');
  await addBlob(unmarked);
  const filled = new MemoryDriver();
  filled.damage(digest, content);
  const none = new MemoryDriver();
  for (const [work, sides, commands] of [
    [async () => checkPair(database, none), ['storage'], ['entrepot storage copy --to', 'entrepot adopt']],
    [async () => checkPair(database, await marked(`copying ${identity}`)), ['storage'], ['entrepot storage copy --to']],
    [async () => checkPair(database, await marked('other')), ['storage', 'database'], ['entrepot adopt']],
    [async () => checkPair(empty, driver), ['database'], ['entrepot adopt']],
    [async () => checkPair(empty, filled), ['database'], ['entrepot adopt']],
    [async () => checkPair(unmarked, none), ['storage'], ['entrepot adopt']],
    [async () => checkPair(empty, await marked('restoring')), ['database', 'storage'], ['entrepot restore']],
    [async () => refuseForeign(driver), ['database'], ['entrepot adopt']],
    [async () => markStorage(filled, undefined), ['storage'], []],
    [async () => checkTarget(database, await marked('other')), ['storage'], []],
    [async () => checkTarget(empty, driver), ['storage'], []],
  ] as const) {
    const error = await t.throwsAsync<WrongPair>(work());
    const named = [...error.message.matchAll(/"([^"]+)"/g)].map(([, command]) => command!);
    t.deepEqual([error.sides, named], [[...sides], [...commands]], error.message);
  }
  t.is(await rowOf(empty), undefined, 'nothing is written');
});

test('a restore that is not finished is refused before the tables are there', async (t) => {
  const { database, driver, identity } = await paired(t);
  const unfinished = { message: /^a restore into this place is not finished/ };
  const mark = await marked('restoring');
  await t.notThrowsAsync(refuseUnfinished(database, driver));
  await t.notThrowsAsync(refuseUnfinished(database, mark), 'the database has an installation');
  const bare = await openUntilEnd(t, await emptyDatabase(t, 'sqlite'));
  await t.throwsAsync(refuseUnfinished(bare, mark), unfinished);
  await t.notThrowsAsync(refuseUnfinished(bare, new MemoryDriver()));
  await t.notThrowsAsync(refuseUnfinished(bare, await marked('other')));
  const away = new MemoryDriver();
  away.readIdentity = () => Promise.reject(new Error('away'));
  await t.notThrowsAsync(refuseUnfinished(bare, away));

  const { database: restored } = await emptyPair(t, 'sqlite');
  t.deepEqual([await hasIdentity(restored), await hasIdentity(database)], [false, true]);
  await restored.transaction(markDatabase);
  await t.throwsAsync(refuseUnfinished(restored, driver), unfinished);
  t.is(await restoringIdentity(restored), await installationIdentity(restored));
  t.is(await restoringIdentity(database), undefined);
  t.is(await restoringIdentity((await emptyPair(t, 'sqlite')).database), undefined);
  await pairRestored(restored, mark);
  await checkPair(restored, mark);
  t.is((await rowOf(restored))!.state, 'paired');
  t.not(await mark.readIdentity(), identity);
});

test('only an earlier target that servers do not use is marked before a further copy', async (t) => {
  const { database, driver, identity } = await paired(t);
  const target = await marked(identity);
  const at = (place: string | undefined) => {
    target.fact = () => Promise.resolve(place === undefined ? undefined : { place }) as never;
  };
  for (const [active, place] of [
    [undefined, 'there'],
    ['there', 'there'],
    ['elsewhere', undefined],
    [undefined, undefined],
  ]) {
    await setActiveStorage(database, active);
    t.is(await activeStorage(database), active);
    at(place);
    await checkTarget(database, target);
    t.is(await target.readIdentity(), identity, `${active} ${place}`);
  }
  at('there');
  await setActiveStorage(database, 'elsewhere');
  for (let copy = 0; copy < 2; copy += 1) {
    await checkTarget(database, target);
    t.is(await target.readIdentity(), `copying ${identity}`);
  }
  await pairTarget(database, target);
  t.is(await target.readIdentity(), identity);
  await checkPair(database, driver);
  t.is(await activeStorage((await emptyPair(t, 'sqlite')).database), undefined);
});

test('an adoption counts live content and its files, also those of unfinished pushes', async (t) => {
  const { database, driver } = await emptyPair(t, 'sqlite');
  const [here, gone, pending, unknown] = ['here', 'gone', 'pending', 'unknown'].map((text) => digestOf(text));
  const row = { size: 4, stored_at: 0 };
  await database.transaction((tx) =>
    tx.insertNew('blobs', [
      { ...row, digest: here!, state: 'live' },
      { ...row, digest: gone!, state: 'live' },
      { ...row, digest: pending!, state: 'pending' },
    ]),
  );
  for (const each of [here, pending, unknown]) driver.damage(each!, Buffer.from('1234'));
  const found: Adopted[] = [];
  await adopt(database, driver, (each) => void found.push(each));
  t.deepEqual(found, [{ blobs: 2, missing: 1, files: 3, bytes: 12, unknown: 1 }]);

  const { database: unmarked } = await emptyPair(t, 'sqlite');
  await addBlob(unmarked, 'pending');
  await t.notThrowsAsync(checkPair(unmarked, new MemoryDriver()), 'an unfinished push has no file yet');
});

test('the first process writes its identity without waiting for another', async (t) => {
  const { database, driver } = await emptyPair(t, 'sqlite');
  let reads = 0;
  const watched = changedDatabase(database, {
    get: (sql, values) => {
      if (sql.includes('FROM storage_identity')) reads += 1;
      return database.get(sql, values);
    },
  });
  await checkPair(watched, driver);
  t.true(reads <= 3, String(reads));
});

test('an identity that another command replaces meanwhile does not count as written', async (t) => {
  const { database, driver } = await emptyPair(t, 'sqlite');
  const write = driver.writeIdentity.bind(driver);
  driver.writeIdentity = async (identity) => {
    await write(identity);
    await database.transaction((tx) => tx.run("UPDATE storage_identity SET identity = 'replaced'"));
  };
  await checkPair(database, driver);
  t.like(await rowOf(database), { identity: 'replaced', state: 'new' });
});
