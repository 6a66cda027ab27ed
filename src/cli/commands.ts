import type { Command } from 'commander';
import type { Environment } from '../config/load.ts';
import { addAccount } from './account.ts';
import { addAdopt } from './adopt.ts';
import { addBackup } from './backup.ts';
import { addCert } from './cert.ts';
import { addAudit } from './audit.ts';
import { addBundle } from './bundle.ts';
import { addClaim } from './claim.ts';
import { addClient } from './client.ts';
import { addAdvisory, addDeprecate } from './deprecate.ts';
import { addDoctor } from './doctor.ts';
import type { Terminal } from './with-installation.ts';
import { addExplain } from './explain.ts';
import { addExport } from './export.ts';
import { addGrant } from './grant.ts';
import { addHealth } from './health.ts';
import { addImport } from './import.ts';
import { addInstances } from './instances.ts';
import { addJobs } from './jobs.ts';
import { lineOfOwner } from './other-user.ts';
import { addPolicy } from './policy.ts';
import { addPrefetch } from './prefetch.ts';
import { runProgram } from './program.ts';
import type { Terminal } from './with-installation.ts';

type Add = (program: Command, environment: Environment, terminal: Terminal) => void;

/** The commands of each file, in the order of the help. A file is loaded only for its commands, or for the help of all. */
const files: readonly [commands: string, load: () => Promise<Add>][] = [
  ['serve', async () => (await import('./serve.ts')).addServe],
  ['account', async () => (await import('./account.ts')).addAccount],
  ['token', async () => (await import('./token.ts')).addToken],
  ['publisher', async () => (await import('./publisher.ts')).addPublisher],
  ['claim', async () => (await import('./claim.ts')).addClaim],
  ['deprecate', async () => (await import('./deprecate.ts')).addDeprecate],
  ['advisory', async () => (await import('./deprecate.ts')).addAdvisory],
  ['permanence', async () => (await import('./permanence.ts')).addPermanence],
  ['deleted', async () => (await import('./deleted.ts')).addDeleted],
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
export function run(words: readonly string[], environment: Environment, outside: Terminal): Promise<number> {
  const advise = (error: unknown) =>
    error instanceof OtherOwner ? ` Type: ${lineOfOwner(error.owner, words, environment, outside)}` : '';
  const add = (program: Command, terminal: Terminal) => {
    // Its log escapes what it contains.
    addServe(program, environment, outside);
    addAccount(program, environment, terminal);
    addToken(program, environment, terminal);
    addPublisher(program, environment, terminal);
    addGrant(program, environment, terminal);
    addClaim(program, environment, terminal);
    addDeprecate(program, environment, terminal);
    addAdvisory(program, environment, terminal);
    addUsage(program, environment, terminal);
    addAudit(program, environment, terminal);
    addWebhook(program, environment, terminal);
    addAdopt(program, environment, terminal);
    addBackup(program, environment, terminal);
    addStorage(program, environment, terminal);
    addDoctor(program, environment, terminal);
    addCert(program, environment, terminal);
    addPrefetch(program, environment, terminal);
    addBundle(program, environment, terminal);
    addImport(program, environment, terminal);
    addExport(program, environment, terminal);
    addClient(program, environment, terminal);
    addTakeover(program, environment, terminal);
    addWanted(program, environment, terminal);
    addPolicy(program, environment, terminal);
    addWaiver(program, environment, terminal);
    addExplain(program, environment, terminal);
    addJobs(program, environment, terminal);
    addInstances(program, environment, terminal);
    addHealth(program, environment, terminal);
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
