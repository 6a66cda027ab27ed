import { entrepot } from './in-process.ts';

// Every command, so that a new one is tested without being added to a list.

/** Commands that use no data folder. */
export const withoutFolder = ['client', 'health', 'bundle keygen', 'bundle revoke', 'bundle inspect'];

/** What commands need beside their names. A command that is not here needs nothing. `folder` has a `list.txt`. */
export const needed = (folder: string): Record<string, string> => ({
  'account create': 'team',
  'token create': '--name x',
  'token revoke': 'x',
  'publisher create': '--name x --issuer x --claim a=b',
  'publisher delete': 'x',
  'person disable': 'x --reason x',
  'person enable': 'x',
  'access explain': 'group x read Lib',
  'access list': 'read Lib',
  'grant add': 'group x --may read',
  'grant accept': 'x',
  'grant remove': 'x',
  'claim release': 'x --kind package',
  'deleted restore': '1',
  'deleted purge': '1 --reason x',
  promote: 'Lib 1.0.0',
  'promotion approve': '1',
  'promotion reject': '1',
  deprecate: 'My.Package --all --reason Legacy',
  'advisory create': 'My.Package --affected 1.0.0 --severity high --url https://example.test/7',
  'advisory delete': 'x',
  'usage reconcile': `--access-log ${folder}/list.txt`,
  'webhook create': '--url https://hooks.example.test/',
  'webhook change': 'x --disable',
  'webhook delete': 'x',
  'webhook test': 'x',
  'webhook deliveries': 'x',
  'webhook redeliver': 'x --since 1d',
  backup: `${folder}/backup.tar`,
  restore: `${folder}/x.tar`,
  'storage copy': '--to s3',
  cert: '--self-signed',
  exposed: 'Lib@1.0.0',
  explain: 'Lib 1.0.0',
  'policy apply': `${folder}/list.txt`,
  'policy seed': `${folder}/list.txt --by Ada`,
  'policy suspend': '--for 2h',
  'waiver request': 'Lib 1.0.0 --lifts age --reason needed --for 1d',
  'waiver approve': '1 --layer all',
  'waiver reject': '1',
  'waiver end': '1',
  client: 'containerd --url https://hub.example.com',
  'client check': 'containerd --url https://hub.example.com --wait 1s',
  prefetch: `${folder}/list.txt`,
  wanted: `--to ${folder}/wanted.txt`,
  'bundle create': `${folder}/list.txt --to ${folder}/bundle`,
  'bundle import': `${folder}/bundle`,
  'bundle verify': `${folder}/bundle`,
  'bundle receipt': `--to ${folder}/receipt`,
  'bundle trust add': `${folder}/list.txt`,
  'bundle trust remove': 'x',
  'bundle trust revoke': 'x',
  import: folder,
  export: 'feed https://old.example.com/v3/index.json',
  'takeover mirror': 'old x',
  'takeover report': 'old',
  'takeover finish': 'old',
  'jobs run': 'gc',
});

/** All commands and groups, as their help lists them. */
export async function allCommands(group = ''): Promise<string[]> {
  const { stdout } = await entrepot({}, ...group.split(' ').filter(Boolean), '--help');
  const listed = stdout.split('\nCommands:\n')[1] ?? '';
  const names = [...listed.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name]) => name!).filter((name) => name !== 'help');
  const below = await Promise.all(names.map((name) => allCommands(`${group} ${name}`.trim())));
  return [...(group === '' ? [] : [group]), ...below.flat()];
}
