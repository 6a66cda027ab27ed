import type { Command } from 'commander';
import { byPlural, protocolWords } from '../config/protocols.ts';

/** Options that give name patterns, such as `--packages` and `--containers`. */
export type PatternOptions = Readonly<Record<string, unknown>>;

/** Adds an option for each kind of names. `limited` is what the patterns limit. */
export function addPatternOptions(command: Command, limited: string): Command {
  for (const { plural, names, example } of protocolWords)
    command.option(
      `--${plural} <patterns>`,
      `limit ${limited} to ${names}, such as ${example}; alone, it allows no other kind of names`,
    );
  return command;
}

/**
 * The patterns of options, which are separated by commas; undefined without an option. With one of the options alone, no names
 * of the other kinds are allowed.
 */
export function patternsIn(options: PatternOptions): Record<string, string[]> | undefined {
  if (protocolWords.every(({ plural }) => options[plural] === undefined)) return undefined;
  return byPlural(({ plural }) => listIn(options[plural] as string | undefined));
}

/** Patterns as a column of a table. */
export function patternsText(patterns: Readonly<Record<string, readonly string[] | undefined>>): string {
  return protocolWords.map(({ plural }) => `${plural}: ${patterns[plural]?.join(',') || 'none'}`).join('; ');
}

/** The words of a list that commas separate. */
export function listIn(text = ''): string[] {
  return text
    .split(',')
    .map((each) => each.trim())
    .filter(Boolean);
}
