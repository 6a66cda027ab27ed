import test, { type ExecutionContext } from 'ava';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import { verifyPlace } from '../../../src/storage/upkeep/verify.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';
import { openStoreOn, references } from '../../support/store.ts';

// What changes while the content is verified.

async function setUp(t: ExecutionContext) {
  const place = await openStoreOn(t, 'sqlite', () => new MemoryDriver());
  const { database, blobs, driver } = place;
  await database.transaction((tx) =>
    tx.insert('repositories', { account_id: 1, name: 'team/app', created_at: 0, updated_at: 0 }),
  );
  const link = (digest: Digest) =>
    database.transaction((tx) => tx.insertNew('repository_blobs', [{ repository_id: 1, digest, linked_at: 0 }]));
  return {
    database,
    driver,
    push: async (text: string, isNeeded = true) => {
      const arrival = await blobs.stageBytes(Buffer.from(text));
      await blobs.commit([arrival], () => Promise.resolve());
      if (isNeeded) await link(arrival.digest);
      return arrival.digest;
    },
    change: (sql: string, digest: Digest) => database.transaction((tx) => tx.run(sql, [digest])),
    verify: async () => {
      const lines: string[] = [];
      const done = await verifyPlace({ database, driver, references }, 2 ** 30, (line) => lines.push(line));
      return { done, lines };
    },
  };
}

test('a verification names what is damaged or missing, and who needs it', async (t) => {
  const { driver, push, verify, change } = await setUp(t);
  const [flipped, cut, missing, unknown] = [
    await push('flipped'),
    await push('cut'),
    await push('missing'),
    await push('unknown'),
  ];
  await push('sound');
  t.deepEqual(await verify(), { done: { blobs: 5, bytes: 29, problems: 0 }, lines: [] });
  driver.damage(flipped, Buffer.from('Flipped'));
  driver.damage(cut, Buffer.from('cu'));
  await driver.delete(missing);
  await change("UPDATE blobs SET state = 'deleting' WHERE digest = ?", unknown);
  const { done, lines } = await verify();
  t.deepEqual(done, { blobs: 4, bytes: 22, problems: 4 });
  const needed = 'needed by repository team/app';
  t.deepEqual(
    lines.toSorted(),
    [
      `damaged ${flipped}: its bytes have another digest; ${needed}`,
      `damaged ${cut}: it has 2 bytes, and not 3; ${needed}`,
      `missing ${missing}: 7 bytes; ${needed}`,
      `missing ${unknown}: repository_blobs names it, and it has no row`,
    ].toSorted(),
  );
});

test('each row that names content without a row is found, also if there are many', async (t) => {
  const { database, verify } = await setUp(t);
  const digests = Array.from({ length: 401 }, (_, index) => digestOf(`missing ${index}`)).toSorted();
  const links = digests.map((digest) => ({ repository_id: 1, digest, linked_at: 0 }));
  await database.transaction((tx) => tx.insertNew('repository_blobs', links));
  const { done, lines } = await verify();
  t.deepEqual(done, { blobs: 0, bytes: 0, problems: 401 });
  t.deepEqual(
    lines,
    digests.map((digest) => `missing ${digest}: repository_blobs names it, and it has no row`),
  );
});

test('content that the disk cannot read is damaged', async (t) => {
  const { driver, push, verify } = await setUp(t);
  const digest = await push('bad sector', false);
  const open = driver.open.bind(driver);
  driver.open = async (...given) => ({
    ...(await open(...given)),
    read: async () => {
      throw Object.assign(new Error('bad sector'), { code: 'EIO' });
    },
  });
  t.deepEqual((await verify()).lines, [`damaged ${digest}: the disk cannot read it`]);
});

test('damaged content that nothing needs is named, too', async (t) => {
  const { driver, push, verify } = await setUp(t);
  const digest = await push('unneeded', false);
  await driver.delete(digest);
  t.deepEqual(await verify(), {
    done: { blobs: 1, bytes: 8, problems: 1 },
    lines: [`missing ${digest}: 8 bytes`],
  });
});

test('a blob that cannot be opened is named, and the others are verified', async (t) => {
  const { driver, push, verify } = await setUp(t);
  const closed = await push('closed');
  for (const name of ['one', 'two']) driver.damage(await push(name), Buffer.from('???'));
  const open = driver.open.bind(driver);
  driver.open = (digest, ...rest) =>
    digest === closed
      ? Promise.reject(Object.assign(new Error('no permission'), { code: 'EACCES' }))
      : open(digest, ...rest);
  const { done, lines } = await verify();
  t.like(done, { blobs: 3, problems: 3 });
  t.true(lines.some((line) => line.startsWith(`unreadable ${closed}: it cannot be opened`)));
  driver.check = () => Promise.reject(new Error('the disk is gone'));
  await t.throwsAsync(verify(), { message: 'the disk is gone' });
});

for (const [what, sql] of [
  ['removed', 'DELETE FROM blobs WHERE digest = ?'],
  ['being removed', "UPDATE blobs SET state = 'deleting' WHERE digest = ?"],
  ['stored again', 'UPDATE blobs SET generation = generation + 1 WHERE digest = ?'],
] as const) {
  test(`a blob that is ${what} while it is verified is no problem`, async (t) => {
    const { driver, push, verify, change } = await setUp(t);
    const digest = await push('content');
    driver.damage(digest, Buffer.from('damaged'));
    t.is((await verify()).done.problems, 1);
    driver.faults.after = async (operation) => {
      if (operation === 'open') await change(sql, digest);
    };
    t.deepEqual(await verify(), { done: { blobs: 1, bytes: 7, problems: 0 }, lines: [] });
  });
}
