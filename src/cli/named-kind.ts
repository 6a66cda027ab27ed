import type { Command } from 'commander';
import { kindOfWord, protocolWords } from '../config/protocols.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Installation } from '../server/installation.ts';

export interface KindOptions {
  kind?: string;
}

const words = protocolWords.map(({ word }) => word);

/** Adds the option `--kind` to a command about a name. */
export function addKindOption(command: Command): Command {
  return command.option(
    '--kind <kind>',
    `what the name is: ${words.join(' or ')}; without it, a name with a slash is an image`,
  );
}

/** The protocol of a name, and what people call such a name. Throws `Invalid`. */
export function protocolOf(
  protocols: Installation['protocols'],
  name: string,
  { kind }: KindOptions,
): { protocol: Installation['protocols'][number]; word: string } {
  const word = kind ?? (name.includes('/') ? 'image' : 'package');
  const protocol = protocols.find((each) => each.kind === kindOfWord(word));
  if (!protocol) throw new DomainError('Invalid', `--kind: expected ${words.join(' or ')}.`);
  return { protocol, word };
}
