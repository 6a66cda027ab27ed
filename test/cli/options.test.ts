import test from 'ava';
import { allCommands } from '../support/all-commands.ts';
import { entrepot } from '../support/in-process.ts';

// What options accept. None of these commands opens an installation.

const noInput = '-: cannot be read: there is no standard input';
const whole = (most: number) => `Use a whole number from 1 to ${most}.`;
const rate = 'Use bytes per second such as 20MiB/s.';
const share = 'Use a share such as 80% or 0.8.';
const time = 'Use a duration such as 12h or 30d.';
const number = 'expected a number from 1 to 10000';
const client = 'client containerd --url https://hub.example';

test('the help shows the values that an option can have, and the one that it has without it', async (t) => {
  const shown: string[] = [];
  const inAccount: string[] = [];
  for (const command of await allCommands()) {
    const { stdout } = await entrepot({}, ...command.split(' '), '--help');
    const lines = stdout.replaceAll(/\n {6,}/g, ' ');
    for (const [, option, values] of lines.matchAll(/^ {2}(.*?) {2,}.*?\(((?:choices|default): .*)\)$/gm)) {
      if (option === '--account <name>' && values === 'default: "default"') inAccount.push(command);
      else shown.push(`${command} ${option}: ${values}`);
    }
  }
  const kinds = '"dotnet", "docker", "podman", "containerd", "k3s", "crio", "talos", "openshift", "buildkit"';
  const form = '--form <form>: choices: "mirror", "prefix", default: "mirror"';
  t.deepEqual(shown, [
    'token create --scope <list>: default: "read"',
    'publisher create --scope <list>: default: "read"',
    'claim release --kind <kind>: choices: "package", "container"',
    'promote --reason <text>: default: ""',
    'promotion list --state <state>: choices: "requested", "done", "rejected"',
    'usage --by <division>: choices: "day", "token", "package", "container"',
    'webhook create --events <list>: default: "*"',
    'webhook deliveries --limit <number>: default: 50',
    'backup --rate <size>: default: "64MiB"',
    'verify --rate <size>: default: "64MiB"',
    'storage copy --to <driver>: choices: "s3", "filesystem"',
    'storage copy --rate <size>: default: "64MiB"',
    'prefetch --newest <n>: default: 1',
    'prefetch --concurrency <n>: default: 4',
    'prefetch --rate-limit-share <share>: default: 0.8',
    'bundle create --newest <n>: default: 1',
    'bundle create --concurrency <n>: default: 4',
    'bundle create --rate-limit-share <share>: default: 0.8',
    'bundle keygen --role <role>: choices: "bundles", "receipts", "both"',
    'bundle trust add --role <role>: choices: "bundles", "receipts", "both", "revoke"',
    'import --into, --account <account>: default: "default"',
    'import --concurrency <n>: default: 8',
    'export --from, --account <account>: default: "default"',
    'export --concurrency <n>: default: 4',
    `client kind: choices: ${kinds}`,
    `client ${form}`,
    `client check kind: choices: ${kinds}`,
    `client check ${form}`,
    'client check --wait <time>: default: "5m"',
    'wanted --since <duration>: default: "60d"',
    'policy held --limit <number>: default: "100"',
    'waiver list --state <state>: choices: "requested", "approved", "rejected", "ended"',
    'waiver approve --layer <policy>: choices: "account", "all"',
  ]);
  t.is(
    inAccount.join(', '),
    [
      'account bills',
      'token create, token list, token revoke',
      'grant add, grant list, grant accept, grant remove, access list, access explain, person limit',
      'publisher create, publisher list, publisher delete, publisher explain, claim list, claim release',
      'deprecate, advisory create, advisory list, advisory delete, permanence show, permanence set',
      'deleted list, deleted restore, deleted purge, promote, usage',
      'webhook create, webhook list, webhook change, webhook delete, webhook test, webhook deliveries',
      'webhook redeliver, prefetch, bundle create, bundle verify, client, client check',
      'policy seed, policy held, waiver request, explain',
    ].join(', '),
  );
});

test('a wrong option ends the command with a message that says what is right', async (t) => {
  const cases: [line: string, message: string][] = [
    [
      'prefetch - --kind dockerfiles',
      'Use one of lock, assets, project, packages-config, tools, sdks, compose, kubernetes, dockerfile, list, packages, images.',
    ],
    ['prefetch - --kind dockerfile', noInput],
    ['prefetch - --platform linux', 'Use platforms such as linux/amd64,linux/arm/v7.'],
    ['prefetch - --platform linux/amd64,', noInput],
    ['prefetch - --newest 0', whole(1000)],
    ['prefetch - --newest 1', noInput],
    ['prefetch - --newest 1000', noInput],
    ['prefetch - --newest 1001', whole(1000)],
    ['prefetch - --newest 1e2', whole(1000)],
    ['prefetch - --newest x10', whole(1000)],
    ['prefetch - --newest 0x10', whole(1000)],
    ['prefetch - --used-within soon', time],
    ['prefetch - --used-within 0s', time],
    ['prefetch - --used-within 1s', noInput],
    ['prefetch - --arg TAG', 'Use NAME=VALUE.'],
    ['prefetch - --arg 1TAG=x', 'Use NAME=VALUE.'],
    ['prefetch - --arg _T.A-G1=a=b', noInput],
    ['prefetch - --window 22:00', 'Use hours such as 22:00-06:00.'],
    ['prefetch - --window 22:00-06:00', noInput],
    ['prefetch - --concurrency 0', whole(64)],
    ['prefetch - --concurrency 64', noInput],
    ['prefetch - --concurrency 65', whole(64)],
    ['prefetch - --rate fast', rate],
    ['prefetch - --rate 0/s', rate],
    ['prefetch - --rate 1/s', noInput],
    ['prefetch - --rate 1MiB/s2', rate],
    ['prefetch - --rate-limit-share 0', share],
    ['prefetch - --rate-limit-share 0%', share],
    ['prefetch - --rate-limit-share 0.05', noInput],
    ['prefetch - --rate-limit-share 1', noInput],
    ['prefetch - --rate-limit-share 12.25%', noInput],
    ['prefetch - --rate-limit-share 100%', noInput],
    ['prefetch - --rate-limit-share 101%', share],
    ['prefetch - --rate-limit-share 1.1', share],
    ['prefetch - --rate-limit-share x80%', share],
    ['prefetch - --rate-limit-share 80%%', share],
    ['prefetch', 'give a file, a folder, "-" for a list on standard input, or --in-use'],
    ['bundle create --to x', 'give a file, a folder, "-" for a list on standard input, --in-use, --stored or --hosted'],
    ['bundle create - --to x --segment big', '--segment: expected a size such as 4.3GB.'],
    ['bundle create - --to x --segment 0', '--segment: expected a size such as 4.3GB.'],
    ['bundle create - --to x --segment 1 --expires 1s', noInput],
    ['bundle create - --to x --expires never', '--expires: expected a duration such as 30d.'],
    ['bundle create - --to x --expires 0s', '--expires: expected a duration such as 30d.'],
    [
      'bundle keygen --to k --role both',
      '--role and --for belong to a key that another one signs: give --signed-by, too.',
    ],
    [
      'bundle keygen --to k --for 1d',
      '--role and --for belong to a key that another one signs: give --signed-by, too.',
    ],
    ['bundle keygen --to k --signed-by x --for soon', '--for: expected a duration such as 365d.'],
    ['bundle keygen --to k --signed-by x --for 0d', '--for: expected a duration such as 365d.'],
    ['import harbor', 'name the address, folder or archive after "harbor"'],
    [
      'import /a /b',
      '"/a" is no kind of source; use one of feed, registry, harbor, nexus, folder, bagetter, docker-registry, oci, docker-archive',
    ],
    ['import harbor /folder', 'harbor needs an address with http or https'],
    ['import nexus x://hub.example', 'nexus needs an address with http or https'],
    ['import feed ahttp://hub.example', 'feed needs an address with http or https'],
    ['import folder https://hub.example', 'folder needs a folder or a file'],
    ['import oci HTTP://hub.example', 'oci needs a folder or a file'],
    ['import https://hub.example --concurrency 0', whole(64)],
    ['import https://hub.example --concurrency 65', whole(64)],
    ['import https://hub.example --rename a', 'Use a rule such as old/*=team/* or old/app=team/app.'],
    ['import https://hub.example --rate slow', rate],
    ['export feed https://hub.example --concurrency 0', whole(64)],
    ['export feed https://hub.example --concurrency 65', whole(64)],
    ['webhook deliveries x --limit 0', number],
    ['webhook deliveries x --limit 10001', number],
    ['webhook deliveries x --limit 1x', number],
    ['webhook deliveries x --limit x1', number],
    ['policy suspend --for soon', '--for: expected a time such as 30m or 2h.'],
    ['policy suspend --for 0s', '--for: expected a time such as 30m or 2h.'],
    ['waiver approve 1', "error: required option '--layer <policy>' not specified"],
    ['storage copy', "error: required option '--to <driver>' not specified"],
    ['storage copy --to s3 --rate 0', '--rate needs a size such as 64MiB.'],
    ['storage copy --to s3 --rate x', '--rate needs a size such as 64MiB.'],
    ['backup x.tar --rate 0', '--rate needs a size such as 64MiB.'],
    ['backup x.tar --rate x', '--rate needs a size such as 64MiB.'],
    ['verify --rate 0', '--rate needs a size such as 64MiB.'],
    ['verify --rate x', '--rate needs a size such as 64MiB.'],
    ['cert --self-signed --host a_b-', '--host: "a_b-" is not a DNS name or an IP address'],
    ['cert --self-signed --host a,b', '--host: "a,b" is not a DNS name or an IP address'],
    ['cert --self-signed --host *a', '--host: "*a" is not a DNS name or an IP address'],
    ['cert --self-signed --host *.-a', '--host: "*.-a" is not a DNS name or an IP address'],
    ['cert --self-signed --host x:1', '--host: "x:1" is not a DNS name or an IP address'],
    ['cert --self-signed --host 1:x', '--host: "1:x" is not a DNS name or an IP address'],
    ['gc --yes', '--yes needs --files, without --dry-run.'],
    ['gc --files --yes --dry-run', '--yes needs --files, without --dry-run.'],
    [
      'client dotnet',
      'Name the address of this server for clients: --url https://hub.example.com, or ENTREPOT_BASE_URL.',
    ],
    [
      'client dotnet --url hub',
      'Name the address of this server for clients: --url https://hub.example.com, or ENTREPOT_BASE_URL.',
    ],
    [
      'client dotnet --url https://hub.example --token-env T',
      'The files of dotnet have no token. What is printed says how it gets one.',
    ],
    [`${client} --token-env T`, 'A token is for --write alone: it is never printed.'],
    [`${client} --token-file T`, 'A token is for --write alone: it is never printed.'],
    [`${client} --write x --no-credentials --token-env T`, 'A token is for --write alone: it is never printed.'],
    [`${client} --write x --token-env T`, '--token-env: the environment has no T'],
    [`${client} --write x --token-file -`, '--token-file: standard input has no token'],
    [`${client} --write x`, 'These files need a token: --token-file FILE, --token-env NAME, or --no-credentials.'],
  ];
  for (const [line, message] of cases) {
    const { code, stdout, stderr } = await entrepot({}, ...line.split(' '));
    t.deepEqual([code, stdout], [1, ''], line);
    t.true(
      stderr === `entrepot: ${message}\n` || stderr === `${message}\n` || stderr.endsWith(` is invalid. ${message}\n`),
      `${line}: ${stderr}`,
    );
  }
});
