import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { DomainError } from '../runtime/errors.ts';
import { pagesOf } from '../runtime/pages.ts';
import { row } from './printed.ts';
import { forAccount, type Terminal } from './with-installation.ts';

const pageSize = 500;

/** `entrepot deleted` */
export function addDeleted(program: Command, environment: Environment, terminal: Terminal): void {
  const command = program
    .command('deleted')
    .description('versions, images and tags that were deleted and can be restored');
  forAccount(
    command
      .command('list')
      .description('list them, the latest first: number, type, name, version or tag or digest, end'),
    environment,
    async (account, { deleted }) => {
      const read = (before: number) => deleted.list(account, pageSize, { after: before });
      for await (const page of pagesOf(Number.MAX_SAFE_INTEGER, pageSize, read, ({ id }) => id))
        for (const { id, type, name, reference, endsAt } of page)
          terminal.stdout.write(row(id, type, name, reference, new Date(endsAt).toISOString()));
    },
  );
  forAccount(
    command.command('restore <id>').description('restore one as it was'),
    environment,
    async (account, { deleted }, _options, id) => {
      const { left } = await deleted.restore(account, numberIn(id!));
      for (const tag of left) terminal.stderr.write(`The tag ${tag} exists with another manifest, and stays.\n`);
    },
  );
  forAccount<{ reason: string }>(
    command
      .command('purge <id>')
      .description('delete one for good')
      .requiredOption('--reason <text>', 'why, for the audit'),
    environment,
    async (account, { deleted }, { reason }, id) => {
      if (reason.trim() === '') throw new DomainError('Invalid', '--reason: expected why, for the audit.');
      await deleted.purge(account, numberIn(id!), reason.slice(0, 500));
    },
  );
}

function numberIn(text: string): number {
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new DomainError(
    'Invalid',
    `${text.slice(0, 50)}: expected the number of a deletion, as "deleted list" shows it.`,
  );
}
