import { Readable } from 'node:stream';
import test from 'ava';
import { InstanceLost } from '../../../src/instances/relay.ts';
import { ContinuedUploads, uploadHandler } from '../../../src/oci/http/upload-relay.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';

const digest = digestOf('content');
const id = '01234567-89ab-cdef-0123-456789abcdef';
const key = { accountId: 7, repository: 'app', id };
const source = Readable.from([]);
const onData = () => undefined;
const chunk = { source, start: 3, length: 4, size: 5, allowance: undefined, onData };
const named = { name: 'uploads' };
const busy = { name: 'UploadBusy' };
const unknown = { name: 'UploadUnknown' };

interface World {
  /** The data folder of the session's file. */
  folder: string | null | undefined;
  isOpen: boolean;
  isFromUpload: boolean;
  /** What each call of another instance results in, one after another. */
  results: unknown[];
  hasRelay: boolean;
}

/** An instance with the data folder `here`, and what it does. */
function instance(changes: Partial<World> = {}) {
  const world = { folder: 'there', isOpen: false, isFromUpload: false, results: [], hasRelay: true, ...changes };
  const results = [...world.results];
  const [own, relayed, lost, asked, warned] = [[], [], [], [], []] as unknown[][];
  const doing =
    (name: string, result: unknown) =>
    (...all: unknown[]) => {
      own!.push([name, ...all]);
      return Promise.resolve(result);
    };
  const images = {
    uploads: {
      isOpen: () => world.isOpen,
      received: doing('received', 11),
      append: doing('append', 12),
      finish: doing('finish', undefined),
      cancel: doing('cancel', undefined),
    },
    blobs: {
      isFromUpload: (...all: unknown[]) => {
        asked!.push(all);
        return Promise.resolve(world.isFromUpload);
      },
    },
  };
  const database = {
    get: (_sql: string, values: unknown[]) => {
      asked!.push(values);
      return Promise.resolve(world.folder === undefined ? undefined : { folder: world.folder });
    },
    transaction: (work: (tx: object) => unknown) =>
      Promise.resolve(work({ run: (_sql: string, values: unknown[]) => lost!.push(values) })),
  };
  const relay = {
    call: (call: unknown, body: unknown) => {
      relayed!.push([call, body]);
      const result = results.shift();
      return result instanceof Error ? Promise.reject(result) : Promise.resolve(result);
    },
  };
  const uploads = new ContinuedUploads({
    database,
    images,
    instances: { folder: 'here' },
    relay: world.hasRelay ? relay : undefined,
    idle: 60_000,
    log: { warn: (fields: object) => warned!.push(fields) },
  } as never);
  return { uploads, own, relayed, lost, asked, warned };
}

test('a session whose file is here, or that is not known, is continued here', async (t) => {
  for (const [changes, isAsked] of [
    [{ folder: 'here' }, true],
    [{ folder: null }, true],
    [{ folder: undefined }, true],
    [{ isOpen: true }, false],
  ] as const) {
    const { uploads, own, relayed, asked } = instance(changes);
    t.is(await uploads.received(key), 11);
    t.is(await uploads.append(key, chunk), 12);
    await uploads.finish(key, digest, chunk);
    await uploads.cancel(key);
    t.deepEqual(own, [
      ['received', key],
      ['append', key, chunk],
      ['finish', key, digest, chunk],
      ['cancel', key],
    ]);
    t.deepEqual(relayed, []);
    t.deepEqual(asked, isAsked ? Array.from({ length: 4 }, () => [id, 7, 'app']) : []);
  }
});

test('a session whose file is elsewhere is continued there, with the body as it arrives', async (t) => {
  const { uploads, own, relayed } = instance({ results: [21, 22, null, null, null, null] });
  t.is(await uploads.received(key), 21);
  t.is(await uploads.append(key, chunk), 22);
  await uploads.finish(key, digest, { ...chunk, size: 0, start: undefined, length: undefined });
  await uploads.cancel(key);
  t.deepEqual([await uploads.received(key), await uploads.append(key, chunk)], [0, 0]);
  const to = { folder: 'there', ...named };
  const body = { source, size: 5, idle: 60_000, onData };
  t.deepEqual(relayed!.slice(0, 4), [
    [{ ...to, work: { ...key, do: 'received', size: 0 } }, undefined],
    [{ ...to, work: { ...key, do: 'append', start: 3, length: 4, size: 5 } }, body],
    [
      { ...to, work: { ...key, do: 'finish', digest, start: undefined, length: undefined, size: 0 } },
      { ...body, size: undefined },
    ],
    [{ ...to, work: { ...key, do: 'cancel', size: 0 } }, undefined],
  ]);
  t.deepEqual(own, []);
  const malformed = instance({ results: ['1', -1, 1.5] }).uploads;
  for (let each = 0; each < 3; each += 1) await t.throwsAsync(malformed.received(key), { name: 'ZodError' });
});

test('a session whose instance cannot be called ends; one that goes on there is busy', async (t) => {
  const [early, late] = [new InstanceLost('gone', false), new InstanceLost('broken', true)];
  const there = new DomainError('UploadUnknown', 'no such session there');
  for (const [results, error, isLost, calls] of [
    [[early], unknown, true, 1],
    [[late, 5], busy, false, 2],
    [[late, early], unknown, true, 2],
    [[late, late], unknown, true, 2],
    [[late, there], { is: there }, false, 2],
    [[there], { is: there }, false, 1],
  ] as const) {
    const { uploads, relayed, lost, warned } = instance({ results: [...results] });
    await t.throwsAsync(uploads.append(key, chunk), error);
    t.deepEqual(lost, isLost ? [[id, 7, 'app']] : []);
    t.is(relayed!.length, calls);
    t.deepEqual(warned, results[0] === there ? [] : [{ err: results[0], upload: id }]);
    if (calls === 2)
      t.deepEqual(relayed![1], [
        { folder: 'there', ...named, work: { ...key, do: 'received', start: 3, length: 4, size: 5 } },
        undefined,
      ]);
  }
  const alone = instance({ hasRelay: false });
  await t.throwsAsync(alone.uploads.received(key), unknown);
  t.deepEqual([alone.lost, alone.relayed], [[[id, 7, 'app']], []]);
});

test('an end that the lost instance has reached is an end', async (t) => {
  const gone = new InstanceLost('gone', false);
  const finish = async (changes: Partial<World>) => {
    const { uploads, asked } = instance(changes);
    return { done: uploads.finish(key, digest, chunk), asked };
  };
  const ended = await finish({ results: [gone], isFromUpload: true });
  await t.notThrowsAsync(ended.done);
  t.deepEqual(ended.asked!.at(-1), [7, 'app', digest, id]);
  await t.throwsAsync((await finish({ results: [gone] })).done, unknown);
  const mismatch = new DomainError('DigestMismatch', 'wrong');
  const wrong = await finish({ results: [mismatch], isFromUpload: true });
  await t.throwsAsync(wrong.done, { is: mismatch });
  t.is(wrong.asked!.length, 1);
});

test('the work of another instance is done with the limits of the account', async (t) => {
  const calls: unknown[][] = [];
  const doing =
    (name: string, result: unknown) =>
    (...all: unknown[]) => {
      calls.push([name, ...all]);
      return Promise.resolve(result);
    };
  const images = {
    uploads: {
      received: doing('received', 1),
      append: doing('append', 2),
      finish: doing('finish', undefined),
      cancel: doing('cancel', undefined),
    },
  };
  const accounts = { get: (account: number) => Promise.resolve(account === 7 ? { name: 'team' } : undefined) };
  const quota = { unfinishedOf: (owner: object) => owner };
  const handler = uploadHandler(images as never, accounts as never, quota as never, 1000);
  t.is(handler.name, 'uploads');
  const work = { ...key, do: 'append', start: 0, length: 0, size: 0 };
  const results = [];
  for (const [what, more] of [
    ['received', {}],
    ['append', {}],
    ['finish', { digest }],
    ['cancel', {}],
  ] as const)
    results.push(await handler.run({ ...work, do: what, ...more }, source as never));
  t.deepEqual(results, [1, 2, null, null]);
  t.deepEqual(
    calls.map(([name]) => name),
    ['received', 'append', 'finish', 'cancel'],
  );
  t.deepEqual(
    [calls[0], calls[3]],
    [
      ['received', key],
      ['cancel', key],
    ],
  );
  const { onData: counts, ...given } = calls[1]![2] as typeof chunk;
  t.deepEqual([calls[1]![1], given] as unknown, [
    key,
    { start: 0, length: 0, size: 0, source, idle: 2000, allowance: { accountId: 7, accountName: 'team' } },
  ]);
  t.notThrows(() => counts());
  t.deepEqual(calls[2]!.slice(0, 3), ['finish', key, digest]);
  for (const [changes, name] of [
    [{ do: 'other' }, 'UploadInvalid'],
    [{ accountId: 0 }, 'UploadInvalid'],
    [{ accountId: 1.5 }, 'UploadInvalid'],
    [{ id: 'x' }, 'UploadInvalid'],
    [{ start: -1 }, 'UploadInvalid'],
    [{ length: -1 }, 'UploadInvalid'],
    [{ size: -1 }, 'UploadInvalid'],
    [{ size: undefined }, 'UploadInvalid'],
    [{ more: 1 }, 'UploadInvalid'],
    [{ repository: 'No' }, 'NameInvalid'],
    [{ accountId: 8 }, 'UploadUnknown'],
    [{ do: 'finish' }, 'DigestInvalid'],
  ] as const)
    await t.throwsAsync(handler.run({ ...work, ...changes }, source as never), { name }, JSON.stringify(changes));
  await t.notThrowsAsync(handler.run({ ...key, accountId: 7, do: 'cancel', size: 0 }, source as never));
  t.is(calls.length, 5);
});
