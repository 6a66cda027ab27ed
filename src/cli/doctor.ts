import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../errors.ts';
import { proposeReserved } from '../mirror/reserved.ts';
import { listPackages } from '../nuget/hosted/summary.ts';
import { discard } from '../upstream/body.ts';
import { baseOf } from '../upstream/configured.ts';
import type { Core } from '../server.ts';
import { withCore, type Terminal } from './with-core.ts';
import type { Upstream, UpstreamAnswer } from '../upstream/upstream.ts';
import { urlBelow } from '../upstream/url.ts';

/** One thing that was looked at. */
export interface Finding {
  subject: string;
  ok: boolean;
  /** What was seen, or what to mend. */
  text: string;
}

/** A clock that is off by more makes tokens and certificates fail, in milliseconds. */
const clockTolerance = 60_000;
const namesAtATime = 200;

/** `entrepot doctor` */
export function addDoctor(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('doctor')
    .description('look at the database, the storage and every upstream, and say what to mend')
    .action(() =>
      withCore(environment, async (core) => {
        const findings = await examine(core, Date.now);
        for (const { subject, ok, text } of findings) {
          terminal.stdout.write(`${ok ? 'ok  ' : 'FAIL'}  ${subject}: ${text}\n`);
        }
        const failed = findings.filter(({ ok }) => !ok).length;
        if (failed > 0) throw new DomainError('Invalid', `${failed} of ${findings.length} need mending`);
      }),
    );
}

/** Looks at everything this installation depends on, each upstream included. */
export async function examine(core: Core, now: () => number): Promise<Finding[]> {
  const findings = [
    await attempt('database', 'mend ENTREPOT_DATABASE_URL', async () => {
      await core.database.get('SELECT 1 AS one');
      return `${core.database.dialect} answers`;
    }),
    await attempt('storage', 'let the service write to its data folder', async () => {
      await core.blobs.check();
      return `${core.config.data} can be written`;
    }),
  ];
  findings.push(await examineReserved(core));
  if (core.config.offline) return [...findings, { subject: 'upstreams', ok: true, text: 'offline: none is contacted' }];
  for (const upstream of core.upstreams) findings.push(await examineUpstream(upstream, now));
  return findings;
}

/** Names that are hosted here and could still be told to an upstream. */
async function examineReserved(core: Core): Promise<Finding> {
  const { packageMirror, imageMirror, mirroredPackages, mirroredImages, defaultAccount } = core;
  const subject = 'private names';
  const packages = await proposeReserved(hostedPackages(core), '.', async (prefix) => {
    const [next] = await mirroredPackages.list(defaultAccount.id, 1, prefix.toLowerCase());
    return next?.key.startsWith(prefix.toLowerCase()) ?? false;
  });
  const upstream = imageMirror.upstreams.find(({ config }) => config.default);
  const containers = await proposeReserved(hostedImages(core), '/', async (prefix) => {
    const [next] = await mirroredImages.list(defaultAccount.id, 1, `${upstream?.name}/${prefix}`);
    return next?.name.startsWith(`${upstream?.name}/${prefix}`) ?? false;
  });
  const isAsked = packageMirror.origin.all.length > 0 || upstream !== undefined;
  if (!isAsked || packages.patterns.length + containers.patterns.length === 0) {
    return { subject, ok: true, text: 'no hosted name can be told to an upstream' };
  }
  const lists = Object.entries({ packages, containers }).filter(([, { patterns }]) => patterns.length > 0);
  const setting = lists.map(([kind, { patterns }]) => `${kind}: ${JSON.stringify(patterns)}`).join(', ');
  const more = packages.more + containers.more;
  return {
    subject,
    ok: true,
    text: `an upstream can hear of hosted names, from searches and before a first push; to keep them private, set reserved: { ${setting} }${more > 0 ? ` and ${more} more` : ''}`,
  };
}

async function* hostedPackages({ accounts, database, packageMirror }: Core): AsyncGenerator<string> {
  for (const { id: accountId } of await accounts.list()) {
    for (let after = ''; ;) {
      const page = await listPackages(database, accountId, namesAtATime, after);
      for (const { id } of page) if (packageMirror.origin.candidates(id).length > 0) yield id;
      if (page.length < namesAtATime) break;
      after = page.at(-1)!.key;
    }
  }
}

async function* hostedImages({ accounts, images, imageMirror }: Core): AsyncGenerator<string> {
  for (const { id: accountId } of await accounts.list()) {
    for (let after = ''; ;) {
      const { items, more } = await images.repositories.catalog(accountId, namesAtATime, after);
      for (const name of items) if (imageMirror.locate(name, undefined).place) yield name;
      if (!more) break;
      after = items.at(-1)!;
    }
  }
}

async function examineUpstream(upstream: Upstream, now: () => number): Promise<Finding> {
  const subject = `upstream ${upstream.name}`;
  const { config } = upstream;
  if (config.mode === 'offline') return { subject, ok: true, text: 'set to offline: not contacted' };
  const base = baseOf(config);
  return attempt(subject, adviceFor(upstream), async () => {
    const url = config.kind === 'nuget' ? base : new URL('/v2/', base.origin);
    const answer = await upstream.send({ url, subject: 'doctor' });
    discard(answer.body);
    if (answer.status !== 200) throw new Error(`answers ${answer.status} at ${base.href}; check its url and kind`);
    const seen = [`reachable at ${base.host}`, config.auth ? 'its credentials are accepted' : 'asked anonymously'];
    seen.push(clockOf(answer, now()));
    if (upstream.name === 'docker.io') await askForRateLimit(upstream, base);
    const { remaining, limit } = upstream.rateLimit;
    if (remaining !== undefined) seen.push(`rate limit: ${remaining} left of ${limit}`);
    return seen.join('; ');
  });
}

/** Docker Hub tells its limit with a manifest's headers, and HEAD is not counted. */
async function askForRateLimit(upstream: Upstream, base: URL): Promise<void> {
  const subject = 'ratelimitpreview/test';
  const url = urlBelow(base.origin, 'v2', ...subject.split('/'), 'manifests', 'latest');
  const answer = await upstream.send({ method: 'HEAD', url, subject, scope: `repository:${subject}:pull` });
  discard(answer.body);
}

function clockOf(answer: UpstreamAnswer, now: number): string {
  const theirs = Date.parse(answer.headers.date ?? '');
  if (Number.isNaN(theirs)) return 'it tells no time';
  const off = now - theirs;
  if (Math.abs(off) <= clockTolerance) return 'clocks agree';
  throw new Error(
    `the clock here is ${Math.round(Math.abs(off) / 1000)} s ${off > 0 ? 'ahead' : 'behind'}; set it by NTP`,
  );
}

function adviceFor({ config }: Upstream): string {
  if (config.allowPrivateNetwork)
    return `check the network, a proxy (HTTPS_PROXY), and the address and auth of ${config.name}`;
  return `check the network, a proxy (HTTPS_PROXY), and the address and auth of ${config.name}; one inside your network needs allowPrivateNetwork`;
}

async function attempt(subject: string, advice: string, look: () => Promise<string>): Promise<Finding> {
  try {
    return { subject, ok: true, text: await look() };
  } catch (error) {
    const { message } = error as Error;
    return { subject, ok: false, text: `${message.replace(/\.$/, '')}: ${advice}` };
  }
}
