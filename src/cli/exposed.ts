import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { exposedItem } from '../exposure/exposed-item.ts';
import type { ExposedUser } from '../exposure/exposure.ts';
import { pagesOf } from '../runtime/pages.ts';
import { timeOption } from './audit.ts';
import { row } from './printed.ts';
import { accountId, withInstallation, type Terminal } from './with-installation.ts';

interface ExposedOptions {
  since?: string;
  account?: string;
  json?: boolean;
}

type Place = readonly [contentId: string, userId: string];
type Item = ReturnType<typeof exposedItem>;

const pageSize = 200;

/** `entrepot exposed` */
export function addExposed(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('exposed <what>')
    .description(
      'list who pulled what an advisory or a list is about (GHSA-…, CVE-…, MAL-…), a version (Name@1.2.3, Name@[1.0,2.0), Name@*), or an image (name:tag, sha256:…), and what they pushed afterwards',
    )
    .option('--since <time>', 'only pulls on the day of this time or later, or within a duration, such as 30d')
    .option('--account <name>', 'only pulls of this account; by default of all')
    .option('--json', 'print one JSON object on a line, as in /v1/exposed')
    .action((what: string, { since: text, account, json }: ExposedOptions) =>
      withInstallation(environment, async ({ core, exposure }) => {
        const since = timeOption(text, '--since') ?? 0;
        const only = account === undefined ? undefined : await accountId(core, account);
        const found = await exposure.find(what, only);
        const read = (after: Place | undefined) => exposure.users(found, since, pageSize, after);
        let isPulled = false;
        for await (const page of pagesOf(undefined as Place | undefined, pageSize, read, keyOf)) {
          for (const each of page) {
            const item = exposedItem(each, (await core.accounts.nameOf(each.content.accountId)) ?? null);
            terminal.stdout.write(json ? `${JSON.stringify(item)}\n` : linesOf(item));
          }
          isPulled = true;
        }
        if (!isPulled) terminal.stderr.write('Nobody pulled it from this server, as far as its records show.\n');
        if (!found.isComplete) terminal.stderr.write('There is more: ask for fewer versions at once.\n');
      }),
    );
}

function keyOf({ contentId, userId }: ExposedUser): Place {
  return [contentId, userId];
}

/** The columns: content, account, user, its ID, person or job, first and last pull, pulls. What was pushed afterwards follows. */
function linesOf({ name, reference, account, user, job, count, first_at: first, last_at: last, pushed }: Item): string {
  const who = job ? [job.repository, job.ref, job.run ?? job.subject].filter(Boolean).join(' ') : user?.person;
  return [
    row(
      `${name} ${reference}`,
      account ?? '-',
      user ? (user.name ?? user.kind) : '-',
      user?.id ?? '-',
      who || '-',
      first,
      last,
      count,
    ),
    ...pushed.map((each) => row('', 'pushed later', `${each.name} ${each.reference}`, each.at)),
  ].join('');
}
