import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { readSecret } from '../../src/cli/secret.ts';
import type { Terminal } from '../../src/cli/with-installation.ts';
import { folderUntilEnd } from '../support/folder.ts';

/** What is read of these pieces of standard input, and what a terminal is told and set to. */
async function read(pieces: readonly (string | Uint8Array)[] | undefined, isTTY = false) {
  const told: unknown[] = [];
  let left = 0;
  const stdin = pieces && {
    isTTY,
    ...(isTTY && { setRawMode: (isRaw: boolean) => told.push(isRaw) }),
    async *[Symbol.asyncIterator]() {
      left = pieces.length;
      for (const piece of pieces) {
        left -= 1;
        yield await Promise.resolve(piece);
      }
    },
  };
  const terminal = { stdin, stderr: { write: (text: string) => told.push(text) } } as unknown as Terminal;
  const secret = await readSecret({ tokenFile: '-' }, {}, terminal).catch(
    (error: Error) => `${error.name}: ${error.message}`,
  );
  return { secret, told, left };
}

const none = 'Invalid: --token-file: standard input has no token';
const shown = ['Token (it is not shown): ', true, false, '\n'];

test('a secret on standard input is its first line', async (t) => {
  for (const [pieces, secret, left] of [
    [['  abc', 'd \nmore\n', 'unread'], 'abcd', 1],
    [[Buffer.from('ä'), 'b\r', 'unread'], 'äb', 1],
    [['\n\n abc\nx'], 'abc', 0],
    [['x'.repeat(65_536), 'y', 'unread'], `${'x'.repeat(65_536)}y`, 1],
    [['abc'], 'abc', 0],
    [[], none, 0],
    [[' \n '], none, 0],
  ] as const)
    t.deepEqual(await read(pieces), { secret, told: [], left });
  t.is((await read(undefined)).secret, none);
});

test('a terminal is asked for a secret, which it does not show, and can be corrected or ended', async (t) => {
  t.deepEqual(await read(['a', 'b', '\r', 'unread'], true), { secret: 'ab', told: shown, left: 1 });
  t.is((await read(['ab', '\u007f', 'c\b', 'd', '\n'], true)).secret, 'ad');
  t.is((await read(['\b\bab', '\r'], true)).secret, 'ab');
  t.deepEqual(await read(['ab', '\u0003', 'unread'], true), {
    secret: 'Aborted: no token was entered',
    told: shown,
    left: 1,
  });
});

test('a secret is in a variable of the environment, or in a file, or there is none', async (t) => {
  const terminal = {} as Terminal;
  t.is(await readSecret({ tokenEnv: 'TOKEN', tokenFile: '-' }, { TOKEN: 'abc' }, terminal), 'abc');
  for (const environment of [{}, { TOKEN: '' }])
    await t.throwsAsync(readSecret({ tokenEnv: 'TOKEN' }, environment, terminal), {
      name: 'Invalid',
      message: '--token-env: the environment has no TOKEN',
    });
  const file = join(await folderUntilEnd(t), 'token');
  await writeFile(file, 'abc\n');
  t.is(await readSecret({ tokenFile: file }, {}, terminal), 'abc');
  await t.throwsAsync(readSecret({ tokenFile: `${file}-none` }, {}, terminal), { message: /^--token-file: / });
  t.is(await readSecret({}, { TOKEN: 'abc' }, terminal), undefined);
});
