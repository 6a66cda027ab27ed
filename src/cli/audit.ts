import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { parseDuration, parseTime } from '../config/units.ts';
import { DomainError } from '../runtime/errors.ts';
import { isKnownPattern, itemOf, type RecordedEvent } from '../events/event.ts';
import type { EventFilter, EventKey } from '../events/event-list.ts';
import type { Core } from '../server/core.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

interface AuditOptions {
  account?: string;
  type?: string;
  actor?: string;
  subject?: string;
  since?: string;
  until?: string;
  follow?: boolean;
}

const pageSize = 200;
/** Milliseconds between two looks for new events. */
const pause = 1000;

/** `entrepot audit` */
export function addAudit(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('audit')
    .description('print who did what, one JSON object on a line, the earliest first')
    .option(
      '--since <time>',
      'only events since this time, such as 2027-01-31T12:00:00Z, or within a duration, such as 1d',
    )
    .option('--until <time>', 'only events before this time, or older than a duration')
    .option('--type <type>', 'only this type, such as package.published, or a group such as package.*')
    .option('--actor <actor>', 'only events whose actor has this ID or name')
    .option('--subject <name>', 'only events about this package, image, token, upstream or account')
    .option('--account <name>', 'only events of this account')
    .option('--follow', 'keep printing new events until SIGINT or SIGTERM')
    .action((options: AuditOptions) =>
      withInstallation(environment, async ({ core }) => {
        const stop = new AbortController();
        if (options.follow) {
          for (const signal of ['SIGINT', 'SIGTERM'] as const) terminal.once(signal, () => stop.abort());
        }
        // For example "entrepot audit | head".
        terminal.stdout.on?.('error', () => stop.abort());
        await print(core, await filterOf(core, options), options.follow ?? false, terminal, stop.signal);
      }),
    );
}

async function print(
  { events }: Core,
  filter: EventFilter,
  follow: boolean,
  { stdout }: Terminal,
  stop: AbortSignal,
): Promise<void> {
  const write = (some: readonly RecordedEvent[]) => {
    for (const each of some) stdout.write(`${JSON.stringify(itemOf(each))}\n`);
  };
  await events.dispatch();
  // Read before the events: all up to here that are not listed do not match.
  const latest = await events.latest();
  for (let from: EventKey | undefined; !stop.aborted;) {
    const page = await events.listFrom(filter, pageSize, from);
    write(page.events.filter(({ position }) => position <= latest));
    if (!(from = page.next)) break;
  }
  if (!follow) return;
  let after = latest;
  while (!stop.aborted) {
    await events.dispatch();
    const seen = await events.latest();
    const page = await events.listAfter(filter, pageSize, after);
    write(page.events);
    after = page.next?.[1] ?? Math.max(seen, page.events.at(-1)?.position ?? 0);
    if (!page.next) await sleep(pause, undefined, { signal: stop }).catch(() => undefined);
  }
}

async function filterOf(core: Core, options: AuditOptions): Promise<EventFilter> {
  const { account, type, actor, subject, since, until } = options;
  if (type !== undefined && !isKnownPattern(type)) {
    throw new DomainError('Invalid', '--type needs a type such as package.published, or a group such as package.*.');
  }
  return {
    accountId: account === undefined ? undefined : await accountId(core, account),
    type,
    actor,
    subject,
    since: timeOption(since, '--since'),
    until: timeOption(until, '--until'),
  };
}

/** A time, or the time before which a duration began; milliseconds since 1970. */
export function timeOption(text: string | undefined, option: string): number | undefined {
  if (text === undefined) return undefined;
  const duration = parseDuration(text);
  const time = duration === undefined ? parseTime(text) : Date.now() - duration;
  if (time !== undefined) return time;
  throw new DomainError('Invalid', `${option} needs a time such as 2027-01-31T12:00:00Z, or a duration such as 1d.`);
}
