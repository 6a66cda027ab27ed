import { readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Command } from 'commander';
import { Option } from 'commander';
import { bundleInvalid, maxStatement } from '../bundle/format.ts';
import { newKeyPair, readPublicKey, readSigningKey } from '../bundle/keys.ts';
import type { SigningKey } from '../runtime/dsse.ts';
import {
  isStatement,
  readKeyStatement,
  readRevocation,
  signingRoles,
  writeKeyStatement,
  writeRevocation,
  type KeyStatement,
} from '../bundle/statements.ts';
import { roles, TrustedKeys, type Role } from '../bundle/trust.ts';
import type { Environment } from '../config/load.ts';
import { parseDuration } from '../config/units.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import { refuseOthersFolder } from '../server/command-place.ts';
import { row, shown } from './printed.ts';
import { withInstallation, type Terminal } from './with-installation.ts';

interface KeygenFlags {
  to: string;
  signedBy?: string;
  role?: NonNullable<KeyStatement['role']>;
  for?: string;
}

interface AddFlags {
  name?: string;
  role?: Role;
  for?: string;
}

/** `entrepot bundle keygen`, `revoke` and `trust`: the keys that sign, and those whose signatures are accepted. */
export function addBundleKeys(bundle: Command, environment: Environment, terminal: Terminal): void {
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  bundle
    .command('keygen')
    .description('make a pair of keys: the private one in the file, the public one beside it with .pub')
    .requiredOption('--to <file>', 'the file of the private key')
    .option(
      '--signed-by <file>',
      'a private key that receivers trust; it signs, in a file with .signed, that they can trust the new one',
    )
    .addOption(
      new Option(
        '--role <role>',
        'with --signed-by: what the new key may sign; by default, what the other may sign there',
      ).choices(signingRoles),
    )
    .option(
      '--for <duration>',
      'with --signed-by: how long the new key may be trusted, such as 365d; without it, always',
    )
    .action((flags: KeygenFlags) => keygen(flags, print));
  bundle
    .command('revoke <key>')
    .description('sign that a key must never be trusted again; receivers apply the file with "trust revoke"')
    .requiredOption('--key <file>', 'the private key that signs it, which receivers trust with the role revoke')
    .requiredOption('--to <file>', 'the file that is written')
    .action(async (text: string, { key, to }: { key: string; to: string }) => {
      const id = /^[0-9a-f]{64}$/.test(text) ? text : readPublicKey(await readText(text), text).id;
      const signing = (await signingKey(key))!;
      if (signing.id === id) throw bundleInvalid('a key cannot revoke itself. Receivers remove it');
      await refuseExisting(to);
      await writeFile(to, writeRevocation(id, signing), { flag: 'wx' });
      print(
        `${shown(to)}: the key ${id.slice(0, 16)} is revoked; receivers apply it with "${typed(`bundle trust revoke ${to}`)}"`,
      );
    });
  addTrust(bundle, environment, terminal);
}

/** The private key in a file. Throws `Invalid`. */
export async function signingKey(file: string | undefined): Promise<SigningKey | undefined> {
  return file === undefined ? undefined : readSigningKey(await readText(file), file);
}

/** The text of a file with a signed statement about a new key. Throws `Invalid`. */
export async function keyStatement(file: string): Promise<string> {
  const text = await readText(file);
  readKeyStatement(text, file);
  return text;
}

async function keygen({ to, signedBy, role, for: time }: KeygenFlags, print: (text: string) => void): Promise<void> {
  if (signedBy === undefined && (role ?? time) !== undefined)
    throw new DomainError('Invalid', '--role and --for belong to a key that another one signs: give --signed-by, too.');
  const validFor = durationOf(time);
  const signer = await signingKey(signedBy);
  const publicFile = `${to}.pub`;
  const signedFile = `${to}.signed`;
  for (const each of [to, publicFile, ...(signer ? [signedFile] : [])]) await refuseExisting(each);
  await refuseOthersFolder('--to', dirname(resolve(to)));
  const { privateKey, publicKey } = newKeyPair();
  await writeFile(to, privateKey, { mode: 0o600, flag: 'wx' });
  await writeFile(publicFile, publicKey.pem, { mode: 0o644, flag: 'wx' });
  print(`${shown(to)}: the private key; keep it secret`);
  print(
    `${shown(publicFile)}: the public key ${publicKey.id.slice(0, 16)}; receivers trust it with "${typed(`bundle trust add ${publicFile}`)}"`,
  );
  if (!signer) return;
  const expiresAt = validFor === undefined ? null : Date.now() + validFor;
  const statement = writeKeyStatement({ key: publicKey, role: role ?? null, expiresAt }, signer);
  await writeFile(signedFile, statement, { mode: 0o644, flag: 'wx' });
  print(
    `${shown(signedFile)}: the same, signed by the key ${signer.id.slice(0, 16)}; receivers that trust that one trust it with "${typed(`bundle trust add ${signedFile}`)}"`,
  );
}

function addTrust(bundle: Command, environment: Environment, terminal: Terminal): void {
  const print = (text: string) => void terminal.stdout.write(`${text}\n`);
  const trust = bundle.command('trust').description('the keys whose signatures are accepted here');
  trust
    .command('add <file>')
    .description('trust a public key; or a new key, because a trusted one signed so in a file with .signed')
    .option('--name <name>', 'its name; the name of the file by default')
    .addOption(new Option('--role <role>', 'what it may sign; without it, bundles and receipts').choices(roles))
    .option('--for <duration>', 'how long, such as 365d; without it, until it is removed')
    .action(async (file: string, flags: AddFlags) => {
      const time = durationOf(flags.for);
      const name = (flags.name ?? file.replace(/^.*[/\\]/, '').replace(/\.(?:pub|signed)$/, '')).slice(0, 100);
      await withInstallation(
        environment,
        async ({ core }) => {
          const trusted = new TrustedKeys(core.database, core.now);
          const text = await readText(file);
          const terms = { name, role: flags.role, expiresAt: time && core.now() + time };
          if (!isStatement(text)) {
            print((await trusted.add(readPublicKey(text, file), terms)).id);
            return;
          }
          const { key, signer } = await trusted.addSigned(readKeyStatement(text, file), terms);
          const end = key.expiresAt === null ? '' : `, until ${dateOf(key.expiresAt)}`;
          print(`${key.id}\tmay sign ${key.role}${end}, because ${shown(signer.name)}, ${signer.id}, signed so`);
        },
        { creates: true },
      );
    });
  trust
    .command('list')
    .description(
      'list trusted keys, then revoked ones: ID, name, what they may sign or "revoked", since when, until when, the key that signed so',
    )
    .action(() =>
      withInstallation(environment, async ({ core }) => {
        const trusted = new TrustedKeys(core.database, core.now);
        for (const { id, name, role, addedAt, expiresAt, vouchedBy } of await trusted.list())
          terminal.stdout.write(keyRow(id, name, role, [addedAt, expiresAt], vouchedBy));
        for (const { id, name, revokedAt, revokedBy } of await trusted.revoked())
          terminal.stdout.write(keyRow(id, name ?? '-', 'revoked', [revokedAt, null], revokedBy));
      }),
    );
  trust
    .command('remove <key>')
    .description('trust a key no more, by its name, its ID or the beginning of that')
    .action((text: string) =>
      withInstallation(environment, async ({ core }) => {
        const { id, name } = await new TrustedKeys(core.database, core.now).remove(text);
        print(`removed ${shown(name)}, ${id}`);
      }),
    );
  trust
    .command('revoke <file>')
    .description('never trust a key again, because a trusted key with the role revoke signed so in this file')
    .action((file: string) =>
      withInstallation(environment, async ({ core }) => {
        const revocation = readRevocation(await readText(file), file);
        const done = await new TrustedKeys(core.database, core.now).revoke(revocation);
        const { key, signer, isRepeated, vouched } = done;
        const how = isRepeated
          ? 'was revoked before'
          : `revoked, because ${shown(signer.name)}, ${signer.id}, signed so`;
        print(`${key.id}\t${key.name === null ? 'was not trusted here' : shown(key.name)}: ${how}`);
        for (const { id, name } of vouched)
          print(`${id}\t${shown(name)} is trusted because the revoked key signed so; remove it unless you know it`);
      }),
    );
}

/** What a key may sign, or that it is revoked, since when and until when, and the key that signed so. */
function keyRow(id: string, name: string, what: string, times: [number, number | null], by: string | null): string {
  const [since, until] = times;
  return row(id, name, what, dateOf(since), until === null ? '-' : dateOf(until), by ?? '-');
}

function durationOf(text: string | undefined): number | undefined {
  const time = text === undefined ? undefined : parseDuration(text);
  if (text !== undefined && !time) throw new DomainError('Invalid', '--for: expected a duration such as 365d.');
  return time;
}

async function refuseExisting(file: string): Promise<void> {
  if (await stat(file).catch(() => undefined)) throw bundleInvalid(`${file} exists already. Name a new file`);
}

function dateOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** The text of a file with a key or a statement. */
async function readText(file: string): Promise<string> {
  try {
    if ((await stat(file)).size > maxStatement)
      throw bundleInvalid(`${file} is no key and no statement: it is too large`);
    return await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof DomainError) throw error;
    throw bundleInvalid(`${file} cannot be read: ${(error as Error).message}`, error);
  }
}
