import test from 'ava';
import type { Throttle } from '../../../src/runtime/incoming.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { DomainError } from '../../../src/runtime/errors.ts';
import { checkStored, refuseOtherFailures } from '../../../src/storage/drivers/check-stored.ts';
import { contentDamaged, type Content } from '../../../src/storage/files/content.ts';
import { MemoryDriver } from '../../support/memory-driver.ts';

// What a check of stored bytes says, and what it leaves.

const bytes = Buffer.alloc(600_000, 'abc');
const blob = { digest: digestOf(bytes), size: bytes.length };

/** A storage whose content can be read only until it is closed. */
function storageOf(read: Content['read'], closed: string[] = []): MemoryDriver {
  const driver = new MemoryDriver();
  driver.open = () =>
    Promise.resolve({
      size: bytes.length,
      read: async (target, position) => {
        await new Promise(setImmediate);
        if (closed.length > 0) throw new Error('closed');
        return read(target, position);
      },
      close: () => void closed.push('closed'),
    });
  return driver;
}

const whole: Content['read'] = (target, position) => Promise.resolve(bytes.copy(target, 0, position));
const short: Content['read'] = (target, position) => Promise.resolve(position > 0 ? 0 : bytes.copy(target));
const failing = (fault: Error) => () => Promise.reject(fault);
const failure = (code: string) => Object.assign(new Error(code), { code });

test('all bytes are read in order, in pieces of 256 KiB, and the content is closed once', async (t) => {
  const closed: string[] = [];
  const [spent, used]: [number[], Buffer[]] = [[], []];
  const throttle = { spend: (count: number) => Promise.resolve(void spent.push(count)) } as unknown as Throttle;
  const use = (piece: Buffer) => Promise.resolve(void used.push(Buffer.from(piece)));
  t.is(await checkStored(storageOf(whole, closed), blob, { throttle, use }), 'sound');
  t.deepEqual(spent, [262_144, 262_144, 75_712]);
  t.true(Buffer.concat(used).equals(bytes));
  t.deepEqual(closed, ['closed']);
  t.is(await checkStored(storageOf(whole), blob), 'sound');
  t.is(await checkStored(storageOf(whole), { digest: digestOf(bytes, 'sha512'), size: bytes.length }), 'sound');
  t.is(await checkStored(storageOf(whole), { digest: digestOf(''), size: 0 }), 'sound');
  t.is(await checkStored(storageOf(whole), { ...blob, digest: digestOf('other') }), 'damaged');
});

test('a check tells missing, damaged and unreadable bytes from other failures', async (t) => {
  const opening = (fault: Error) => {
    const driver = new MemoryDriver();
    driver.open = failing(fault);
    return checkStored(driver, blob);
  };
  t.is(await opening(new DomainError('BlobUnknown', 'missing')), 'missing');
  t.is(await opening(contentDamaged(blob.digest)), 'damaged');
  await t.throwsAsync(opening(failure('EACCES')), { code: 'EACCES' });
  const closed: string[] = [];
  const reading = (fault: Error) => checkStored(storageOf(failing(fault), closed), blob).finally(() => closed.pop());
  t.is(await reading(failure('EIO')), 'unreadable');
  t.is(await reading(contentDamaged(blob.digest)), 'damaged');
  await t.throwsAsync(reading(failure('ENOMEM')), { code: 'ENOMEM' });
  t.deepEqual(closed, [], 'each was closed');
  t.is(await checkStored(storageOf(short), blob), 'damaged');
});

test('only the failure of one blob is accepted, and only while the storage works', async (t) => {
  const driver = new MemoryDriver();
  const away = new DomainError('StorageUnavailable', 'away');
  for (const each of [failure('EACCES'), away]) await t.notThrowsAsync(refuseOtherFailures(driver, each));
  for (const each of [
    new Error('no code'),
    Object.assign(new Error('number'), { code: 5 }),
    contentDamaged(blob.digest),
  ])
    t.is(await t.throwsAsync(refuseOtherFailures(driver, each)), each);
  for (const each of [null, undefined]) {
    const refused = refuseOtherFailures(driver, each).then(
      () => 'accepted',
      (error: unknown) => error,
    );
    t.is(await refused, each);
  }
  driver.faults.before = (operation) => {
    if (operation === 'check') throw new Error('the storage is away');
  };
  await t.throwsAsync(refuseOtherFailures(driver, failure('EACCES')), { message: 'the storage is away' });
});
