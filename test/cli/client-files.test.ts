import { chmod, chown, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { writeClientFiles } from '../../src/cli/client-files.ts';
import { redirectState } from '../../src/cli/doctor-redirect.ts';
import { OtherOwner } from '../../src/server/command-place.ts';
import { nobody, testAsRoot } from '../support/as-root.ts';
import { folderUntilEnd } from '../support/folder.ts';

async function setUp(t: ExecutionContext) {
  const folder = await folderUntilEnd(t);
  await chmod(folder, 0o700);
  const write = (files: Parameters<typeof writeClientFiles>[1], overwrite = false) =>
    writeClientFiles(folder, files, overwrite);
  const mode = async (name: string) => (await stat(join(folder, name))).mode & 0o777;
  const read = (name: string) => readFile(join(folder, name), 'utf8');
  return { folder, write, mode, read };
}

const file = (path: string, content: string, secret = false) => ({ path, content, secret });

test('files are written with the mode of their content, and the same ones are left as they are', async (t) => {
  const { folder, write, mode, read } = await setUp(t);
  const files = [file('a/b/public', 'one\n'), file('secret', 'tökén\n', true)];
  const written = await write(files);
  t.deepEqual(
    written.map(({ path, isSame }) => [path, isSame]),
    [
      [join(folder, 'a/b/public'), false],
      [join(folder, 'secret'), false],
    ],
  );
  t.deepEqual([await read('a/b/public'), await read('secret')], ['one\n', 'tökén\n']);
  t.deepEqual([await mode('a/b/public'), await mode('secret'), await mode('a/b')], [0o644, 0o600, 0o755]);
  const { ino } = await stat(join(folder, 'secret'));
  t.deepEqual(
    (await write(files)).map(({ isSame }) => isSame),
    [true, true],
  );
  t.is((await stat(join(folder, 'secret'))).ino, ino);
  // Others could read it.
  await chmod(join(folder, 'secret'), 0o640);
  await chmod(join(folder, 'a/b/public'), 0o666);
  t.deepEqual(
    (await write(files)).map(({ isSame }) => isSame),
    [true, true],
  );
  t.deepEqual([await mode('secret'), await mode('a/b/public')], [0o600, 0o666]);
  t.deepEqual((await readdir(folder)).toSorted(), ['a', 'secret'], 'nothing else is left');
});

test('a different file is replaced only if that is asked for, and before that nothing is written', async (t) => {
  const { folder, write, read } = await setUp(t);
  await writeFile(join(folder, 'one'), 'other');
  await writeFile(join(folder, 'two'), 'same length!');
  await t.throwsAsync(write([file('new', 'x'), file('one', 'mine'), file('two', 'other bytes!')]), {
    name: 'AlreadyExists',
    message: `${join(folder, 'one')}, ${join(folder, 'two')}: there is another file already. Compare it with what this command prints without --write, and merge them by hand, or replace it with --overwrite. Nothing was written.`,
  });
  t.deepEqual((await readdir(folder)).toSorted(), ['one', 'two']);
  const written = await write([file('new', 'x'), file('one', 'mine'), file('two', 'same length!')], true);
  t.deepEqual(
    written.map(({ isSame }) => isSame),
    [false, false, true],
  );
  t.deepEqual([await read('new'), await read('one'), await read('two')], ['x', 'mine', 'same length!']);
});

test('a link or a folder in place of a file is refused, and so is a folder below a file', async (t) => {
  const { folder, write } = await setUp(t);
  await mkdir(join(folder, 'folder'));
  await symlink('/dev/null', join(folder, 'link'));
  for (const name of ['folder', 'link'])
    await t.throwsAsync(write([file(name, 'x')], true), {
      name: 'Invalid',
      message: `${join(folder, name)} is not a file: remove it, or name another folder.`,
    });
  await writeFile(join(folder, 'file'), '');
  await t.throwsAsync(write([file('file/below', 'x')]), { message: /ENOTDIR/ });
});

testAsRoot('root writes nothing where other users can change it', async (t) => {
  const { folder, write } = await setUp(t);
  await mkdir(join(folder, 'shared'));
  await chmod(join(folder, 'shared'), 0o777);
  const shared = {
    name: 'Invalid',
    message: `--write: other users may change ${join(folder, 'shared')}, so root writes nothing there. Name another folder.`,
  };
  await t.throwsAsync(write([file('shared/a', 'x')]), shared);
  await t.throwsAsync(write([file('shared/below/a', 'x')]), shared);
  await chmod(join(folder, 'shared'), 0o720);
  await t.throwsAsync(write([file('shared/a', 'x')]), shared);
  await chmod(join(folder, 'shared'), 0o1777);
  await t.notThrowsAsync(write([file('shared/a', 'x')]), 'as in /tmp, others cannot replace its file');
  await mkdir(join(folder, 'theirs'));
  await chown(join(folder, 'theirs'), nobody, nobody);
  await t.throwsAsync(write([file('theirs/a', 'x')]), { instanceOf: OtherOwner });
  await symlink('theirs', join(folder, 'link'));
  await t.throwsAsync(write([file('link/a', 'x')]), { instanceOf: OtherOwner });
  t.deepEqual(await readdir(join(folder, 'theirs')), []);
});

/** What is said of redirects of a server with these addresses. */
const state = (urls: object, redirectHost: string | undefined) =>
  redirectState({ server: urls } as never, { redirectHost } as never);

test('a host of redirects that is that of the server, or below it, would get tokens', (t) => {
  t.is(state({ baseUrl: 'https://hub.test' }, undefined), undefined);
  const text = 'large downloads are redirected to s3.test, and their egress is an estimate';
  t.deepEqual(state({ baseUrl: 'https://hub.test/', feedUrl: 'https://feed.test:8443' }, 's3.test'), { text });
  t.deepEqual(state({ baseUrl: 'https://3.test' }, 's3.test'), { text }, 'only whole labels count');
  t.deepEqual(state({}, 's3.test'), {
    text: `${text}; set ENTREPOT_BASE_URL to check that this host is not below the one of this server`,
  });
  for (const [urls, host, where] of [
    [{ baseUrl: 'https://s3.test' }, 's3.test', ''],
    [{ feedUrl: 'https://hub.test', registryUrl: 'https://test' }, 's3.test', 'below '],
    [{ registryUrl: 'https://s3.test:9000/x' }, 's3.test', ''],
  ] as const) {
    const own = where === '' ? 's3.test' : 'test';
    t.is(
      state(urls, host)?.problem,
      `Docker and other clients send their token also to s3.test, because it is ${where}the host ${own} of this server, and S3 then refuses them: set ENTREPOT_STORAGE_S3_PUBLIC_ENDPOINT to another host name, or ENTREPOT_STORAGE_S3_REDIRECT to false`,
    );
  }
});
