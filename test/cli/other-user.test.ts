import { chown, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { emptyPlace, serveOn } from '../backup/support.ts';
import { nobody, testAsRoot } from '../support/as-root.ts';
import { allCommands, needed, withoutFolder } from '../support/all-commands.ts';
import { dialects } from '../support/databases.ts';
import { entrepot } from '../support/in-process.ts';

// In a process of its own: a helper declares tests of it.

/** Also what is in it. */
async function giveAway(folder: string): Promise<void> {
  for (const name of ['.', ...(await readdir(folder, { recursive: true })).sort()])
    await chown(join(folder, name), nobody, nobody);
}

for (const dialect of dialects) {
  testAsRoot(`${dialect}: root runs no command in the data folder of another user, and is told the line`, async (t) => {
    const place = await emptyPlace(t, dialect);
    await (await serveOn(t, place)).close();
    const { folder, data, environment } = place;
    await writeFile(join(folder, 'list.txt'), 'alpine:3.20\n');
    // A restore reads its source first.
    await writeFile(join(folder, 'x.tar'), '');
    t.is((await entrepot(environment, 'token', 'list')).code, 0, 'the same user');
    await giveAway(data);
    const before = await readdir(folder, { recursive: true });
    let refused = 0;
    for (const command of (await allCommands()).filter((each) => !withoutFolder.includes(each))) {
      const line = `${command} ${needed(folder)[command] ?? ''}`.trim();
      const { code, stdout, stderr } = await entrepot(environment, ...line.split(' '));
      t.deepEqual([code, stdout], [1, ''], line);
      if (stderr.startsWith(`Usage: entrepot ${command} [options] [command]`)) continue;
      t.regex(stderr, /^entrepot: ENTREPOT_DATA: \S+ belongs to the user 65534, and this command runs as root: .*\n$/);
      const settings = 'ENTREPOT_DATA,ENTREPOT_DATABASE_URL,ENTREPOT_UPSTREAMS';
      const typed = ` Type: sudo -u '#65534' --preserve-env=${settings} entrepot ${line}\n`;
      t.true(stderr.endsWith(typed), `${line}: ${stderr}`);
      refused += 1;
    }
    t.true(refused > 35, `${refused}`);
    t.deepEqual(await readdir(folder, { recursive: true }), before);
    for (const name of await readdir(data, { recursive: true })) t.is((await stat(join(data, name))).uid, nobody, name);
  });
}

testAsRoot(
  'root makes no installation and no certificate in a folder that was prepared for another user',
  async (t) => {
    const place = await emptyPlace(t, 'sqlite');
    await chown(place.folder, nobody, nobody);
    for (const data of [place.folder, join(place.folder, 'new/data')]) {
      const environment = { ...place.environment, ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: '' };
      for (const line of [
        'account create team',
        'cert --self-signed',
        `cert --self-signed --out ${place.folder}/tls`,
      ]) {
        const { code, stderr } = await entrepot(environment, ...line.split(' '));
        t.is(code, 1, line);
        t.regex(stderr, /belongs to the user 65534/, line);
      }
    }
    const environment = { ...place.environment, ENTREPOT_DATA: place.folder, ENTREPOT_DATABASE_URL: '' };
    t.regex((await entrepot(environment, 'serve')).stderr, /belongs to the user 65534/);
    t.deepEqual(await readdir(place.folder), []);
  },
);

testAsRoot('a line with spaces and quotes is one that a shell reads as it was typed', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  await mkdir(place.data);
  await giveAway(place.data);
  const { stderr } = await entrepot(
    place.environment,
    'token',
    'create',
    '--name',
    "the team's CI; id",
    '--scope=read',
  );
  t.true(stderr.endsWith(` entrepot token create --name 'the team'\\''s CI; id' --scope=read\n`), stderr);
});

testAsRoot('the line is one of setpriv where there is no sudo', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  await mkdir(place.data);
  await giveAway(place.data);
  const [both, one] = [join(place.folder, 'both'), join(place.folder, 'one')];
  for (const folder of [both, one]) {
    await mkdir(folder);
    await writeFile(join(folder, 'setpriv'), '');
  }
  await writeFile(join(both, 'sudo'), '');
  const lineWith = async (path: string) => {
    const { stderr } = await entrepot({ ...place.environment, PATH: path }, 'token', 'list');
    return / Type: (.*)\n$/.exec(stderr)?.[1];
  };
  const setpriv = 'setpriv --reuid=65534 --regid=65534 --clear-groups entrepot token list';
  t.is(await lineWith(one), setpriv);
  t.is(await lineWith(`:/none:${one}`), setpriv);
  for (const path of [both, `${one}:${both}`, place.folder])
    t.regex((await lineWith(path))!, /^sudo -u '#65534' /, path);
});

testAsRoot('root writes no key into a folder of another user', async (t) => {
  const place = await emptyPlace(t, 'sqlite');
  await mkdir(place.data);
  await giveAway(place.data);
  const { code, stderr } = await entrepot(place.environment, 'bundle', 'keygen', '--to', join(place.data, 'near.key'));
  t.is(code, 1);
  t.regex(stderr, /^entrepot: --to: \S+ belongs to the user 65534, and this command runs as root: /);
  t.deepEqual(await readdir(place.data), []);
});
