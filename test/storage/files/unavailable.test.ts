import test from 'ava';
import { storageFailure } from '../../../src/storage/files/unavailable.ts';

const failed = (code: string, syscall: string) =>
  storageFailure(Object.assign(new Error(`${code}: ${syscall}`), { code, syscall }));

test('errors of files are an unavailable storage', (t) => {
  for (const [code, syscall] of [
    ['EIO', 'read'],
    ['ESTALE', 'write'],
    ['EIO', 'open'],
    ['ETIMEDOUT', 'open'],
    ['ENOTCONN', 'stat'],
    ['EACCES', 'rename'],
    ['EROFS', 'mkdir'],
    // Too many open files, of the process and of the system.
    ['EMFILE', 'open'],
    ['ENFILE', 'open'],
    ['EBUSY', 'unlink'],
    ['EHOSTDOWN', 'stat'],
    ['ENODEV', 'access'],
    ['ENOTDIR', 'scandir'],
    ['ENXIO', 'open'],
    ['EPERM', 'unlink'],
  ] as const) {
    t.is(failed(code, syscall)?.name, 'StorageUnavailable', `${code} ${syscall}`);
  }
  for (const call of 'access copyfile fdatasync fstat fsync ftruncate mkdir open opendir rename rmdir scandir stat unlink'.split(
    ' ',
  ))
    t.is(failed('EACCES', call)?.name, 'StorageUnavailable', call);
});

test('the same codes of a socket, and other codes of files, are not', (t) => {
  for (const [code, syscall] of [
    ['ETIMEDOUT', 'connect'],
    ['ETIMEDOUT', 'read'],
    ['EHOSTDOWN', 'connect'],
    ['ENOTCONN', 'shutdown'],
    ['EACCES', 'bind'],
    ['ENOENT', 'open'],
    ['EISDIR', 'read'],
  ] as const) {
    t.is(failed(code, syscall), undefined, `${code} ${syscall}`);
  }
  t.is(storageFailure({ code: 'EIO', syscall: 'open' }), undefined, 'not an error');
});
