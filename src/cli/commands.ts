import type { Command } from 'commander';
import { OtherOwner } from '../server/command-place.ts';
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
import { addDeleted } from './deleted.ts';
import { addDoctor } from './doctor.ts';
import type { Terminal } from './with-installation.ts';
import { addExposed } from './exposed.ts';
import { addExplain } from './explain.ts';
import { addExport } from './export.ts';
import { addHealth } from './health.ts';
import { addImport } from './import.ts';
import { addInstances } from './instances.ts';
import { addJobs } from './jobs.ts';
import { lineOfOwner } from './other-user.ts';
import { addPermanence } from './permanence.ts';
import { addPolicy } from './policy.ts';
import { addPrefetch } from './prefetch.ts';
import { runProgram } from './program.ts';
import { addPublisher } from './publisher.ts';
import { addServe } from './serve.ts';
import { addStorage } from './storage.ts';
import { addTakeover } from './takeover.ts';
import { addToken } from './token.ts';
import { addWanted } from './wanted.ts';
import { addWaiver } from './waiver.ts';
import { addUsage } from './usage.ts';
import { addWebhook } from './webhook.ts';

/** Runs one command; resolves to the exit code. */
export function run(words: readonly string[], environment: Environment, outside: Terminal): Promise<number> {
  const advise = (error: unknown) =>
    error instanceof OtherOwner ? ` Type: ${lineOfOwner(error.owner, words, environment, outside)}` : '';
  const add = (program: Command, terminal: Terminal) => {
    // Its log escapes what it contains.
    addServe(program, environment, outside);
    addAccount(program, environment, terminal);
    addToken(program, environment, terminal);
    addPublisher(program, environment, terminal);
    addClaim(program, environment, terminal);
    addDeprecate(program, environment, terminal);
    addAdvisory(program, environment, terminal);
    addPermanence(program, environment, terminal);
    addDeleted(program, environment, terminal);
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
    addExposed(program, environment, terminal);
    addExplain(program, environment, terminal);
    addJobs(program, environment, terminal);
    addInstances(program, environment, terminal);
    addHealth(program, environment, terminal);
  };
  return runProgram(words, outside, add, advise);
}
