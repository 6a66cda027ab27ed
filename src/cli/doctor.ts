import type { Command } from 'commander';
import { typed } from '../runtime/command-name.ts';
import { ConfigError, type Environment } from '../config/load.ts';
import { checkTimes } from '../tls/certificate.ts';
import { pairFiles, readPair } from '../tls/pair.ts';
import { unknownAccounts, type Core } from '../server/core.ts';
import { DomainError, isDomainError } from '../runtime/errors.ts';
import { publicUpstreams } from '../config/upstreams.ts';
import { adminHostAdvice, adminHostOf } from '../server/admin-host.ts';
import { relayAdvice } from '../instances/open.ts';
import { proposeReserved } from '../mirror/policy/reserved.ts';
import { openRequirements } from '../server/preflight.ts';
import { discard } from '../upstream/body.ts';
import { baseOf } from '../upstream/configured.ts';
import { withheldFrom } from '../upstream/credentials.ts';
import { checksOf } from '../server/checks.ts';
import type { Installation } from '../server/installation.ts';
import { examinePolicies } from './doctor-policies.ts';
import { redirectState } from './doctor-redirect.ts';
import { shown } from './printed.ts';
import { withInstallation, type Terminal } from './with-installation.ts';
import type { Upstream, UpstreamAnswer } from '../upstream/upstream.ts';

/** The result of one check. */
export interface CheckResult {
  subject: string;
  ok: boolean;
  /** A check failed, but nothing uses what was checked yet, so `ok` is true. */
  isNote?: boolean;
  /** The state, or the problem and how to fix it. */
  text: string;
}

/** A failure whose message already says what to do. */
class Advice extends Error {}

/** Throws it again; the message of a `ConfigError` says what to do. */
function advise(error: Error): never {
  throw error instanceof ConfigError ? new Advice(error.message) : error;
}

/** A larger difference between clocks can make tokens and certificates fail; milliseconds. */
const clockTolerance = 60_000;
/** Content in use that is named for each list of known bad content. */
const maxUsed = 5;

/** `entrepot doctor` */
export function addDoctor(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('doctor')
    .description('check the database, the storage and every upstream, and suggest fixes')
    .action(() =>
      withInstallation(environment, async (installation) => {
        // The findings say what the checks would log.
        installation.core.log.level = 'silent';
        const findings = await examine(installation, Date.now);
        for (const { subject, ok, isNote, text } of findings) {
          terminal.stdout.write(`${isNote ? 'note' : ok ? 'ok  ' : 'FAIL'}  ${shown(subject)}: ${shown(text)}\n`);
        }
        const failed = findings.filter(({ ok }) => !ok).length;
        if (failed > 0) throw new DomainError('Invalid', `${failed} of ${findings.length} checks failed`);
      }),
    );
}

/** Checks everything that this installation depends on, including each upstream. `now` is milliseconds since 1970 UTC. */
export async function examine(installation: Installation, now: () => number): Promise<CheckResult[]> {
  const { core } = installation;
  const findings = [
    await attempt('database', 'check ENTREPOT_DATABASE_URL', async () => {
      await checkAll(core, 'database');
      return `${core.database.dialect} answers`;
    }),
    await attempt('storage', 'give the server write access to its data folder', async () => {
      await checkAll(core, 'storage');
      return storageOf(core);
    }),
  ];
  const redirects = redirectState(core.config, core.driver.describe());
  if (redirects) {
    const { problem, text } = redirects;
    findings.push({ subject: 'redirects', ok: problem === undefined, text: problem ?? text });
  }
  if (core.config.redis.url !== undefined) {
    findings.push(
      await attempt('redis', 'check ENTREPOT_REDIS_URL', async () => {
        await checkAll(core, 'redis');
        return 'Redis answers';
      }),
    );
  }
  for (const { subject, check } of (await openRequirements(core)).list) {
    findings.push(
      await attempt(subject, 'check the database and Redis', async () => {
        const { text, doubt } = await check().catch(advise);
        return doubt === undefined ? text : `${text}: ${doubt}`;
      }),
    );
  }
  const files = pairFiles(core.config.server.tls);
  if (files) {
    findings.push(
      await attempt('certificate', 'replace the files; a running server uses the previous ones', async () => {
        const pair = await readPair(files);
        checkTimes(pair, now());
        return `valid until ${pair.leaf.validToDate.toISOString()} for ${pair.leaf.subjectAltName ?? 'no name'}`;
      }),
    );
  }
  const { adminPort } = core.config.server;
  if (adminPort !== undefined) {
    const text = adminHostAdvice(core.config.server) ?? `it listens on ${adminHostOf(core.config.server)}`;
    findings.push({ subject: 'admin port', ok: true, text });
  }
  findings.push(
    await attempt('webhooks', 'check the database', async () => {
      const problem = await installation.webhooks.keyProblem().catch(advise);
      if (problem !== undefined) throw new Advice(problem);
      return 'none lacks its key';
    }),
  );
  const uploads = relayAdvice(await core.instances.live());
  if (uploads !== undefined) findings.push({ subject: 'instances', ok: true, text: uploads });
  findings.push(await examineReserved(installation));
  findings.push(...(await examineLists(core, now())));
  findings.push(...(await examinePolicies(installation)));
  const withdrawn = await examineWithdrawn(core);
  if (withdrawn) findings.push(withdrawn);
  if (core.config.offline)
    return [...findings, { subject: 'upstreams', ok: true, text: 'offline: no upstream is contacted' }];
  for (const upstream of core.upstreams) findings.push(await examineUpstream(installation, upstream, now));
  return findings;
}

function storageOf({ config: { data }, driver }: Core): string {
  const { kind, name, tried } = driver.describe();
  return `${data} is writable${tried === undefined ? '' : `, and the ${kind} ${name} ${tried}`}`;
}

/** Finds hosted names that could still be sent to an upstream. */
async function examineReserved({ protocols }: Installation): Promise<CheckResult> {
  const subject = 'private names';
  const proposals: [setting: string, patterns: readonly string[]][] = [];
  let more = 0;
  for (const { privateNames } of protocols) {
    const { separator, setting } = privateNames;
    const proposal = await proposeReserved(privateNames.hosted(), separator, (prefix) =>
      privateNames.isMirrored(prefix),
    );
    more += proposal.more;
    if (proposal.patterns.length > 0) proposals.push([setting, proposal.patterns]);
  }
  if (proposals.length === 0 || !protocols.some(({ privateNames }) => privateNames.isAsked)) {
    return { subject, ok: true, text: 'no hosted name can be sent to an upstream' };
  }
  const settings = proposals.map(([setting, patterns]) => `${setting}: ${JSON.stringify(patterns)}`).join(', ');
  return {
    subject,
    ok: true,
    text: `searches, and requests before a first push, can send hosted names to an upstream; to keep them private, set reserved: { ${settings} }${more > 0 ? ` and ${more} more` : ''}`,
  };
}

/** Lists of known bad content that were not read for three times as long as they should be, or that name content in use. */
async function examineLists({ knownBad }: Core, now: number): Promise<CheckResult[]> {
  return (await knownBad.states(now)).map(({ name, refresh, entries, refreshedAt, failures, failure, inUse }) => {
    const subject = `list ${name}`;
    const reason = failures > 0 ? `; the last attempt failed, because it ${failure}` : '';
    const advice = `. Correct its source, then run "${typed('jobs run known-bad')}"`;
    if (refreshedAt === null)
      return { subject, ok: false, text: `it was never read, so it refuses nothing${reason}${advice}` };
    const state = `${entries} entries, last read at ${new Date(refreshedAt).toISOString()}`;
    const used =
      inUse.length === 0 ? '' : `. It names content that clients used in the last 30 days: ${usedText(inUse)}`;
    if (now - refreshedAt > 3 * refresh)
      return { subject, ok: false, text: `it is too old: ${state}${reason}${advice}${used}` };
    return { subject, ok: true, ...(used !== '' && { isNote: true }), text: `${state}${reason}${used}` };
  });
}

/** The first content in use that a list names: packages with versions, images with digests. */
function usedText(inUse: Awaited<ReturnType<Core['knownBad']['states']>>[number]['inUse']): string {
  const texts = inUse.slice(0, maxUsed).map(({ id, name, references, digests }) => {
    const some = references.some((each) => digests.includes(each)) ? digests : references;
    return `${name} ${some.join(', ')} (${id})`;
  });
  const more = inUse.length - texts.length;
  return `${texts.join('; ')}${more > 0 ? `; and ${more} more, in the events known_bad.in_use` : ''}`;
}

/** What upstreams do not offer any more stays here, also above the limit of the mirror. Undefined without such content. */
async function examineWithdrawn({ mirror, config }: Core): Promise<CheckResult | undefined> {
  const counts = await mirror.withdrawals.counts();
  if (counts.size === 0) return undefined;
  const subject = 'withdrawn content';
  const some = [...counts].map(([upstream, count]) => `${count} of ${upstream}`).join(', ');
  const bytes = await mirror.withdrawals.bytes();
  const text = `stored versions and tags that their upstreams do not offer any more: ${some}. They stay, with ${bytes} bytes`;
  const { maxSize } = config.mirror;
  if (maxSize === undefined || bytes <= maxSize) return { subject, ok: true, text };
  const advice = 'raise the limit, or drop what you do not need on the pages of the packages and images';
  return { subject, ok: true, isNote: true, text: `${text}, which is above mirror.maxSize (${maxSize}): ${advice}` };
}

/** Runs the checks of readiness for one part; rejects with what fails, and the reason. */
async function checkAll(core: Core, part: 'database' | 'storage' | 'redis'): Promise<void> {
  const { reads, writes } = checksOf(core);
  for (const check of [...reads, ...writes].filter((each) => each.part === part)) {
    await check.run().catch((error: Error) => {
      if (isDomainError(error, 'StorageFull'))
        throw new Advice(`${check.failure} Free some space, or lower storage.reserve`);
      throw new Error(`${check.failure} ${error.message}`, { cause: error });
    });
  }
}

async function examineUpstream(
  { core, protocols }: Installation,
  upstream: Upstream,
  now: () => number,
): Promise<CheckResult> {
  const subject = `upstream ${upstream.id}`;
  const { config } = upstream;
  const unknown = await unknownAccounts(core.accounts, upstream);
  if (unknown.length > 0) {
    return { subject, ok: false, text: `no account is named ${unknown.join(', ')}: create it, or correct accounts` };
  }
  if (config.mode === 'offline') return { subject, ok: true, text: 'set to offline: not contacted' };
  const base = baseOf(config);
  const spoken = protocols.find((each) => each.upstreams.kind === config.kind)!.upstreams;
  let hasAnswered = false;
  const finding = await attempt(subject, adviceFor(upstream), async () => {
    const answer = await upstream.send({ url: spoken.probe(upstream), subject: 'doctor' });
    discard(answer.body);
    if (answer.status !== 200) throw new Advice(`answers ${answer.status} at ${base.href}; check its url and kind`);
    hasAnswered = true;
    const facts = [`reachable at ${base.host}`, credentialsOf(upstream)];
    const pause = await pauseOf(core, upstream);
    if (pause !== undefined) facts.push(pause);
    facts.push(clockOf(answer, now()));
    await spoken.askRateLimit?.(upstream);
    const { remaining, limit } = upstream.counts.rateLimit(now()) ?? {};
    if (remaining !== undefined)
      facts.push(`rate limit: ${remaining} left${limit === undefined ? '' : ` of ${limit}`}`);
    return facts.join('; ');
  });
  const isUnset = publicUpstreams.includes(config);
  if (finding.ok || hasAnswered) return finding;
  if (!isUnset || (await core.entries.hasAny(upstream.id))) {
    const consequence = await spoken.consequence?.(upstream);
    return consequence === undefined
      ? finding
      : { ...finding, text: `${finding.text}. While it fails, ${consequence}` };
  }
  const text = `${finding.text.replace(/\.$/, '')}. It is one of the default upstreams, and nothing was mirrored from it yet: ENTREPOT_UPSTREAMS can leave it out, and ENTREPOT_OFFLINE=true contacts none`;
  return { subject, ok: true, isNote: true, text };
}

/** That a server has paused its requests, as the events say; this process has sent its own. Undefined if none has. */
async function pauseOf({ events, instances }: Core, { id }: Upstream): Promise<string | undefined> {
  const latest = async (type: string) => (await events.listBefore({ type, subject: id }, 1)).events[0];
  const [opened, closed, live] = await Promise.all([
    latest('upstream.opened'),
    latest('upstream.closed'),
    instances.live(),
  ]);
  if (!opened || (closed && closed.position > opened.position)) return undefined;
  // A pause ends with its process.
  if (!live.some(({ startedAt }) => startedAt <= opened.time)) return undefined;
  const since = new Date(opened.time).toISOString();
  return `a server has paused its requests since ${since}, because it ${String(opened.details['reason'])}; POST /v1/upstreams/${id}/retry tries it now`;
}

/** Whether the credentials were sent with the request, and accepted. */
function credentialsOf({ credentials }: Upstream): string {
  const { isConfigured, sent, withheldFrom: hosts } = credentials;
  if (hosts.length > 0) throw new Advice(hosts.map(withheldFrom).join('; '));
  if (!isConfigured) return 'asked anonymously';
  return sent ? 'its credentials are accepted' : 'it did not ask for credentials';
}

function clockOf(answer: UpstreamAnswer, now: number): string {
  const theirs = Date.parse(answer.headers.date ?? '');
  if (Number.isNaN(theirs)) return 'it sends no date';
  const off = now - theirs;
  if (Math.abs(off) <= clockTolerance) return 'clocks agree';
  throw new Advice(
    `the clock of this machine is ${Math.round(Math.abs(off) / 1000)} s ${off > 0 ? 'ahead' : 'behind'}; set it by NTP`,
  );
}

function adviceFor({ config }: Upstream): string {
  if (config.allowPrivateNetwork)
    return `check the network, a proxy (HTTPS_PROXY), and the address and auth of ${config.name}`;
  return `check the network, a proxy (HTTPS_PROXY), and the address and auth of ${config.name}; an upstream inside your network needs allowPrivateNetwork`;
}

async function attempt(subject: string, advice: string, check: () => Promise<string>): Promise<CheckResult> {
  try {
    return { subject, ok: true, text: await check() };
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof Advice) return { subject, ok: false, text: message };
    return { subject, ok: false, text: `${message.replace(/\.$/, '')}: ${advice}` };
  }
}
