import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { runProgram } from './program.ts';
import type { Terminal } from './with-installation.ts';

type Add = (program: Command, environment: Environment, terminal: Terminal) => void;

/** The commands of each file, in the order of the help. A file is loaded only for its commands, or for the help of all. */
const files: readonly [commands: string, load: () => Promise<Add>][] = [
  ['serve', async () => (await import('./serve.ts')).addServe],
  ['account', async () => (await import('./account.ts')).addAccount],
  ['token', async () => (await import('./token.ts')).addToken],
  ['grant', async () => (await import('./grant.ts')).addGrant],
  ['access', async () => (await import('./grant.ts')).addAccess],
  ['person', async () => (await import('./person.ts')).addPerson],
  ['publisher', async () => (await import('./publisher.ts')).addPublisher],
  ['claim', async () => (await import('./claim.ts')).addClaim],
  ['deprecate', async () => (await import('./deprecate.ts')).addDeprecate],
  ['advisory', async () => (await import('./deprecate.ts')).addAdvisory],
  ['permanence', async () => (await import('./permanence.ts')).addPermanence],
  ['deleted', async () => (await import('./deleted.ts')).addDeleted],
  ['promote promotion', async () => (await import('./promotion.ts')).addPromotion],
  ['usage', async () => (await import('./usage.ts')).addUsage],
  ['audit', async () => (await import('./audit.ts')).addAudit],
  ['webhook', async () => (await import('./webhook.ts')).addWebhook],
  ['adopt', async () => (await import('./adopt.ts')).addAdopt],
  ['backup restore verify', async () => (await import('./backup.ts')).addBackup],
  ['storage', async () => (await import('./storage.ts')).addStorage],
  ['doctor', async () => (await import('./doctor.ts')).addDoctor],
  ['cert', async () => (await import('./cert.ts')).addCert],
  ['prefetch', async () => (await import('./prefetch.ts')).addPrefetch],
  ['bundle', async () => (await import('./bundle.ts')).addBundle],
  ['import', async () => (await import('./import.ts')).addImport],
  ['export', async () => (await import('./export.ts')).addExport],
  ['client', async () => (await import('./client.ts')).addClient],
  ['takeover', async () => (await import('./takeover.ts')).addTakeover],
  ['wanted', async () => (await import('./wanted.ts')).addWanted],
  ['policy', async () => (await import('./policy.ts')).addPolicy],
  ['waiver', async () => (await import('./waiver.ts')).addWaiver],
  ['exposed', async () => (await import('./exposed.ts')).addExposed],
  ['explain', async () => (await import('./explain.ts')).addExplain],
  ['jobs gc retention scrub', async () => (await import('./jobs.ts')).addJobs],
  ['instances', async () => (await import('./instances.ts')).addInstances],
  ['health', async () => (await import('./health.ts')).addHealth],
];

/** Runs one command; resolves to the exit code. */
export async function run(words: readonly string[], environment: Environment, outside: Terminal): Promise<number> {
  const named = files.filter(([commands]) => commands.split(' ').includes(words[0] ?? ''));
  const wanted = named.length > 0 ? named : files;
  const loaded = await Promise.all(wanted.map(async ([commands, load]) => ({ commands, add: await load() })));
  const advise = async (error: unknown) => {
    const { OtherOwner } = await import('../server/command-place.ts');
    const { lineOfOwner } = await import('./other-user.ts');
    return error instanceof OtherOwner ? ` Type: ${lineOfOwner(error.owner, words, environment, outside)}` : '';
  };
  return runProgram(
    words,
    outside,
    (program, terminal) => {
      // The log of `serve` escapes what it contains.
      for (const { commands, add } of loaded) add(program, environment, commands === 'serve' ? outside : terminal);
    },
    advise,
  );
}
