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
  type Adopted,
} from '../../../src/storage/upkeep/identity.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../../support/databases.ts';
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
