import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { allCommands, needed, withoutFolder } from '../support/all-commands.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';

// In a process of its own: it changes the working folder.

// Which commands make an installation where there is none.

/** They make one where a setting names the place. The first two also make `./data`. */
const creating = [
  'serve',
  'restore',
  'adopt',
  'account create',
  'token create',
  'publisher create',
  'webhook create',
  'prefetch',
  'bundle create',
  'bundle import',
  'bundle trust add',
  'import',
];

/** Runs all commands but those in `left`, each in a new folder, which stays as it is. */
async function refuseAll(t: ExecutionContext, left: string[], environment: (folder: string) => Record<string, string>) {
  const commands = await allCommands();
  for (const each of [...left, ...Object.keys(needed(''))]) t.true(commands.includes(each), `${each} exists`);
  let refused = 0;
  for (const command of commands.filter((each) => !left.includes(each))) {
    const folder = await folderUntilEnd(t);
    const place = join(folder, 'place');
    await mkdir(place);
    await writeFile(join(folder, 'list.txt'), 'alpine:3.20\n');
    process.chdir(place);
    const line = `${command} ${needed(folder)[command] ?? ''}`.trim();
    const { code, stdout, stderr } = await entrepot(environment(place), ...line.split(' '));
    t.deepEqual([code, stdout], [1, ''], line);
    t.deepEqual(await readdir(folder, { recursive: true }), ['list.txt', 'place'], line);
    if (stderr.startsWith(`Usage: entrepot ${command} [options] [command]`)) continue;
    t.regex(
      stderr,
      /^entrepot: no installation in \S+; set ENTREPOT_DATA or ENTREPOT_CONFIG as for the server\n$/,
      line,
    );
    refused += 1;
  }
  t.true(refused >= 30, `${refused}`);
}

// `cert` makes files in the data folder, and no installation.
test.serial('where no setting names the place, only serve and restore make an installation', (t) =>
  refuseAll(t, ['serve', 'restore', 'cert', ...withoutFolder], () => ({ ENTREPOT_UPSTREAMS: '[]' })),
);

test.serial('a command that reads or changes makes no installation where a setting names the place', (t) =>
  refuseAll(t, [...creating, 'cert', ...withoutFolder], (place) => ({
    ENTREPOT_DATA: join(place, 'data'),
    ENTREPOT_UPSTREAMS: '[]',
  })),
);

/** Words after which a command that else makes an installation only looks. */
const looking = ['import PLACE --dry-run', 'prefetch LIST --dry-run', 'prefetch --in-use'].concat(
  ['LIST --dry-run', '--stored', '--in-use', '--hosted default'].map((words) => `bundle create --to PLACE/b ${words}`),
);

test.serial('the others make one where a setting names the place, unless they only look', async (t) => {
  const lines = creating.filter((each) => each !== 'serve' && each !== 'restore');
  for (const line of [...lines, ...looking]) {
    const folder = await folderUntilEnd(t);
    await writeFile(join(folder, 'list.txt'), 'alpine:3.20\n');
    const words = looking.includes(line)
      ? line.replace('PLACE', folder).replace('LIST', join(folder, 'list.txt'))
      : `${line} ${needed(folder)[line] ?? ''}`.trim();
    const data = join(folder, 'data');
    await entrepot({ ENTREPOT_DATA: data, ENTREPOT_UPSTREAMS: '[]' }, ...words.split(' '));
    const made = await readdir(data).catch((): string[] => []);
    t.is(made.includes('entrepot.db'), lines.includes(line), words);
  }
});

test.serial('a file of settings that names no place is as none', async (t) => {
  const folder = await folderUntilEnd(t);
  const config = join(folder, 'settings.yaml');
  const make = async (yaml: string) => {
    await writeFile(config, `upstreams: []\n${yaml}`);
    const place = join(await folderUntilEnd(t), 'place');
    await mkdir(place);
    process.chdir(place);
    const { stderr } = await entrepot({ ENTREPOT_CONFIG: config }, 'token', 'create', '--name', 'x', '--scope', 'read');
    return { place, stderr, made: await readdir(place) };
  };
  for (const yaml of ['', 'server: { port: 8181 }\n', 'data: ./data\n']) {
    const { place, stderr, made } = await make(yaml);
    t.deepEqual(
      [stderr, made],
      [
        `entrepot: no installation in ${join(place, 'data')}; set ENTREPOT_DATA or ENTREPOT_CONFIG as for the server\n`,
        [],
      ],
    );
  }
  t.deepEqual((await make(`data: ${join(folder, 'data')}\n`)).made, []);
  t.true((await readdir(join(folder, 'data'))).includes('entrepot.db'));
  const database = `database: { url: 'sqlite:${join(folder, 'other.db')}' }\n`;
  t.true((await make(database)).made.includes('data'), 'the address of a database names the place, too');
});

test.serial('a folder named data that no server has used is no installation', async (t) => {
  for (const content of ['tls', 'blobs']) {
    const place = await folderUntilEnd(t);
    await mkdir(join(place, 'data', content), { recursive: true });
    process.chdir(place);
    const { code, stderr } = await entrepot({ ENTREPOT_UPSTREAMS: '[]' }, 'adopt');
    t.deepEqual([code, await readdir(join(place, 'data'))], [1, [content]]);
    t.regex(stderr, /^entrepot: no installation in /);
  }
});

test.serial('a command beside the database of a server makes no data folder', async (t) => {
  const folder = await folderUntilEnd(t);
  const database = { ENTREPOT_UPSTREAMS: '[]', ENTREPOT_DATABASE_URL: `sqlite:${join(folder, 'here.db')}` };
  await entrepot({ ...database, ENTREPOT_DATA: join(folder, 'data') }, 'account', 'create', 'team');
  const place = await folderUntilEnd(t);
  process.chdir(place);
  const { code, stderr } = await entrepot(database, 'token', 'list');
  t.is(code, 1);
  t.regex(stderr, /^entrepot: no installation in \S+data; set ENTREPOT_DATA /);
  t.deepEqual(await readdir(place), []);
});
