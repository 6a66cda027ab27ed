import { X509Certificate } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Argument, Option, type Command } from 'commander';
import { clientForms, clientKinds, clients, clientText } from '../clients/client.ts';
import type { ClientForm, ClientKind, ClientText } from '../clients/client.ts';
import { loadConfig, type Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { registriesOf } from '../config/upstreams.ts';
import { checkLine, checkResult, plainName, startClientCheck } from '../policy/client-check.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Core } from '../server/core.ts';
import { checkedFor, type ClientCheck, type NotedRequest } from '../usage/client-checks.ts';
import { writeClientFiles } from './client-files.ts';
import { readSecret } from './secret.ts';
import { forAccount, stoppedBy, type Terminal } from './with-installation.ts';

interface PlaceFlags {
  url?: string;
  form: ClientForm;
}

interface TextFlags extends PlaceFlags {
  account: string;
  registries?: string[];
  fallback?: boolean;
  caFile?: string;
  credentials: boolean;
  tokenFile?: string;
  tokenEnv?: string;
  write?: string | true;
  overwrite?: boolean;
}

interface CheckFlags extends PlaceFlags {
  registry?: string;
  denied?: string;
  wait: string;
}

/** Most bytes of a file with certificates. */
const maxCertificates = 65_536;
/** Milliseconds between two looks for requests. */
const lookInterval = 1000;

/** `entrepot client` */
export function addClient(program: Command, environment: Environment, terminal: Terminal): void {
  const client = withPlace(
    program
      .command('client')
      // Both it and `check` have some of the options.
      .enablePositionalOptions()
      .usage('[options] <kind>')
      .description('print the configuration of a client for this server, or write it')
      .addArgument(new Argument('<kind>', 'the client').choices(clientKinds)),
  )
    .option('--account <name>', 'the account whose upstreams it uses', 'default')
    .option('--registries <names>', 'the registries that are mirrored; by default all upstreams', (text) =>
      text.split(',').map((each) => each.trim()),
    )
    .option('--fallback', 'the client asks the other registry, if this server does not have an image')
    .option('--ca-file <file>', 'the certificate of the private authority that signed that of this server, PEM')
    .option('--no-credentials', 'without a token, for readers that need none')
    .option('--token-file <file>', 'with --write: the file with the token; "-" is standard input, or a question')
    .option('--token-env <name>', 'with --write: the environment variable with the token')
    .option('--write [folder]', 'write the files below this folder; by default those of a machine below /, others here')
    .option('--overwrite', 'with --write: replace files that are different')
    .action((kind: ClientKind, flags: TextFlags) => showClient(kind, flags, environment, terminal));
  forAccount<CheckFlags>(
    withPlace(
      client
        .command('check')
        .description('check whether a client uses this server: print a line to run there, and wait for its request')
        .addArgument(new Argument('<kind>', 'the client').choices(clientKinds)),
    )
      .option('--registry <name>', 'the registry that an image is asked of; by default the first upstream')
      .option('--denied <name>', 'check that this, which a policy refuses, is refused: ID@VERSION, or IMAGE:TAG')
      .option('--wait <time>', 'how long to wait, at most 15m', '5m'),
    environment,
    async (accountId, { core, protocols }, { registry, denied, wait, account, ...place }, kind) => {
      const time = parseDuration(wait);
      if (!time || time > checkedFor)
        throw new DomainError('Invalid', '--wait: expected a time such as 5m, at most 15m.');
      const controller = stoppedBy(terminal);
      const { upstreams } = core.config;
      const wanted = {
        accountId,
        client: kind as ClientKind,
        form: place.form,
        host: new URL(addressesOf(place.url, environment).registry).host,
        registry: registry === undefined ? undefined : plain(registry, '--registry'),
        registries: registriesOf(upstreams, account),
        denied: denied === undefined ? undefined : referenceIn(denied),
      };
      const check = await startClientCheck({ ...core, protocols }, wanted);
      terminal.stdout.write(`Run this where the client is, within ${wait}:\n\n  ${checkLine(check)}\n\n`);
      await watch(core, check, time, controller.signal, terminal);
    },
  );
}

function withPlace(command: Command): Command {
  return command
    .option('--url <address>', 'the address of this server for clients; by default that of the settings')
    .addOption(
      new Option(
        '--form <form>',
        'mirror: names of images stay as they are; prefix: they begin with the host of this server',
      )
        .choices(clientForms)
        .default('mirror'),
    );
}

/** The public addresses, without a slash at the end. */
function addressesOf(url: string | undefined, environment: Environment): { feed: string; registry: string } {
  const { baseUrl, feedUrl, registryUrl } = url === undefined ? loadConfig(environment).server : { baseUrl: url };
  const [feed, registry] = [feedUrl ?? baseUrl, registryUrl ?? baseUrl].map((each) => each?.replace(/\/+$/, ''));
  // Of `hub.example.com:8080`, a parser takes the host for the scheme.
  if (feed !== undefined && registry !== undefined && URL.canParse(registry) && /^https?:/i.test(registry))
    return { feed, registry };
  throw new DomainError(
    'Invalid',
    'Name the address of this server for clients: --url https://hub.example.com, or ENTREPOT_BASE_URL.',
  );
}

async function showClient(
  kind: ClientKind,
  flags: TextFlags,
  environment: Environment,
  terminal: Terminal,
): Promise<void> {
  const { write, credentials, account, form, fallback = false } = flags;
  const { holdsToken } = clients[kind];
  const givesToken = flags.tokenFile !== undefined || flags.tokenEnv !== undefined;
  if (givesToken && !(holdsToken && credentials && write !== undefined)) {
    const why = holdsToken
      ? 'A token is for --write alone: it is never printed.'
      : `The files of ${kind} have no token. What is printed says how it gets one.`;
    throw new DomainError('Invalid', why);
  }
  const options = {
    ...addressesOf(flags.url, environment),
    registries: flags.registries ?? registriesOf(loadConfig(environment).upstreams, account),
    form,
    fallback,
    credentials,
    ca: flags.caFile === undefined ? undefined : await readCertificates(flags.caFile),
  };
  if (write === undefined) {
    terminal.stdout.write(printed(clientText(kind, options)));
    return;
  }
  const token = await readSecret(flags, environment, terminal);
  const { files, steps } = clientText(kind, { ...options, token });
  if (token === undefined && files.some(({ secret }) => secret)) {
    throw new DomainError(
      'Invalid',
      'These files need a token: --token-file FILE, --token-env NAME, or --no-credentials.',
    );
  }
  const isOfMachine = files.some(({ path }) => path.startsWith('/'));
  const folder = resolve(write === true ? (isOfMachine ? '/' : '.') : write);
  for (const { path, isSame } of await writeClientFiles(folder, files, flags.overwrite === true))
    terminal.stdout.write(`${isSame ? 'unchanged' : 'written'}: ${path}\n`);
  terminal.stdout.write(printed({ files: [], steps }));
}

function printed({ files, steps }: ClientText): string {
  return [
    ...files.map(({ path, secret, content }) => `# ${path}${secret ? ' (with a token: chmod 600)' : ''}\n${content}\n`),
    ...steps.map(({ text, lines }) => `${text}\n${lines.replace(/^(?=.)/gm, '  ')}${lines && '\n'}`),
  ].join('');
}

/** The certificates in a file. Throws `Invalid` for another file: what is in it would be shown to others. */
async function readCertificates(file: string): Promise<string> {
  const refuse = (why: string) => new DomainError('Invalid', `--ca-file: ${file} ${why}`);
  const { size } = await stat(file).catch((error: Error) => {
    throw refuse(`cannot be read: ${error.message}`);
  });
  if (size > maxCertificates) throw refuse('is larger than 64 KiB.');
  const found =
    (await readFile(file, 'utf8')).match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    // What is around them, such as a key, is left out.
    const certificates = found.map((each) => new X509Certificate(each).toString().trim());
    if (certificates.length > 0) return certificates.join('\n');
  } catch {
    // Said below.
  }
  throw refuse('has no certificate in PEM.');
}

function plain(text: string, option: string): string {
  if (text.length <= 255 && plainName.test(text)) return text;
  throw new DomainError('Invalid', `${option}: expected letters, digits and . _ - / : @ + in "${text}".`);
}

/** A name and its version or tag. The port of a registry is before a slash. */
function referenceIn(text: string): { name: string; reference: string } {
  const [, name, reference] = /^([^@]+)@([^/@]+)$/.exec(text) ?? /^(.+):([^/:]+)$/.exec(text) ?? [];
  if (name === undefined || reference === undefined)
    throw new DomainError('Invalid', '--denied: expected ID@VERSION, or IMAGE:TAG.');
  return { name: plain(name, '--denied'), reference: plain(reference, '--denied') };
}

/** Waits until the result is certain, and prints it. Throws `NotFound` if the client does not use this server. */
async function watch(
  core: Core,
  check: ClientCheck,
  time: number,
  signal: AbortSignal,
  terminal: Terminal,
): Promise<void> {
  const end = performance.now() + time;
  let refusals = 0;
  for (;;) {
    const { requests } = await core.checks.read(check.id, check.accountId);
    const isOver = signal.aborted || performance.now() >= end;
    const { state, conclusion } = checkResult(check, requests, isOver ? check.expiresAt : core.now());
    // A client may try another credential.
    refusals = state === 'refused' ? refusals + 1 : 0;
    if (isOver || state === 'used' || refusals > 2) {
      for (const each of requests) terminal.stdout.write(await requestLine(core, each));
      if (state !== 'used') throw new DomainError('NotFound', conclusion);
      terminal.stdout.write(`${conclusion}\n`);
      return;
    }
    await sleep(lookInterval, undefined, { signal }).catch(() => undefined);
  }
}

async function requestLine({ accounts, tokens }: Core, request: NotedRequest): Promise<string> {
  const { status, accountId, tokenId, hasCredential, agent, address, host, path, count } = request;
  const name = tokenId === null || accountId === null ? undefined : (await tokens.get(accountId, tokenId))?.name;
  const who =
    accountId === null
      ? hasCredential
        ? 'a wrong credential'
        : 'no credential'
      : `${name === undefined ? 'no token' : `the token "${name}"`} of the account ${(await accounts.nameOf(accountId)) ?? ''}`;
  return `${status} ${host}${path} with ${who}, by ${agent || 'an unnamed program'} at ${address}${count > 1 ? `, ${count} times` : ''}\n`;
}
