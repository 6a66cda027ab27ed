import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parse as parseYaml, YAMLParseError } from 'yaml';
import type { z } from 'zod';
import { schema, settings, type Config } from './schema.ts';

/** A setting that stops the start; the message is one line and names the key. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

export type Environment = Readonly<Record<string, string | undefined>>;

const defaultFile = join(import.meta.dirname, '../../config/default.yaml');
/** What a container platform adds by itself for a service named `entrepot`. */
const serviceLink = /^ENTREPOT_(?:.*_)?(?:SERVICE_(?:HOST|PORT)(?:_.*)?|PORT_\d+_.*)$/;

/**
 * The configuration: the file named by `ENTREPOT_CONFIG`, overridden by the environment, secrets also from files named
 * by `…_FILE`. Checked whole and frozen; throws `ConfigError`.
 */
export function loadConfig(environment: Environment): Config {
  const file = environment['ENTREPOT_CONFIG'] ?? defaultFile;
  const values = readYaml(file);
  const known = new Map<string, string>();
  for (const setting of settings) {
    known.set(setting.environment, setting.path);
    let value: unknown = environment[setting.environment];
    if (setting.secret) {
      const fileKey = `${setting.environment}_FILE`;
      known.set(fileKey, setting.path);
      value = readSecret(environment, setting.environment, fileKey);
    }
    if (value === undefined || value === '') continue;
    if (setting.json) value = parseJson(setting.environment, value as string);
    assign(values, setting.path, value);
  }
  for (const name of Object.keys(environment)) {
    if (!name.startsWith('ENTREPOT_') || known.has(name) || name === 'ENTREPOT_CONFIG') continue;
    if (name.startsWith('ENTREPOT_TEST_') || serviceLink.test(name)) continue;
    throw new ConfigError(`${name}: there is no such setting`);
  }
  const result = schema.safeParse(values);
  if (!result.success) throw new ConfigError(describe(result.error.issues[0]!, environment, file));
  return freeze({ ...result.data, data: resolve(result.data.data) });
}

function readYaml(file: string): Record<string, unknown> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new ConfigError(`ENTREPOT_CONFIG: cannot read ${file}: ${(error as Error).message}`);
  }
  try {
    const values: unknown = parseYaml(text) ?? {};
    if (typeof values === 'object' && !Array.isArray(values)) return values as Record<string, unknown>;
  } catch (error) {
    const at = error instanceof YAMLParseError && error.linePos ? `, line ${error.linePos[0].line}` : '';
    throw new ConfigError(`${file}${at}: ${(error as Error).message.split('\n')[0]}`);
  }
  throw new ConfigError(`${file}: expected settings, one "key: value" a line`);
}

function readSecret(environment: Environment, key: string, fileKey: string): string | undefined {
  const file = environment[fileKey];
  if (!file) return environment[key];
  if (environment[key]) throw new ConfigError(`${fileKey}: ${key} is set too; use one of them`);
  return readSecretFile(file, fileKey);
}

/** The secret in `file`, without the line end editors add; `key` is named when it cannot be read. */
export function readSecretFile(file: string, key: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new ConfigError(`${key}: cannot read ${file}: ${(error as Error).message}`);
  }
}

function parseJson(key: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConfigError(`${key}: expected a JSON array`);
  }
}

function assign(values: Record<string, unknown>, path: string, value: unknown): void {
  const [section, key] = path.split('.') as [string, string?];
  if (key === undefined) {
    values[section] = value;
    return;
  }
  const inner = values[section];
  if (typeof inner === 'object' && inner !== null) (inner as Record<string, unknown>)[key] = value;
  else values[section] = { [key]: value };
}

function describe(issue: z.core.$ZodIssue, environment: Environment, file: string): string {
  const path = issue.path.join('.');
  const setting = settings.find((each) => each.path === path);
  const where = setting && environment[setting.environment] ? setting.environment : `${path || 'settings'} (${file})`;
  if (issue.code === 'unrecognized_keys') {
    const keys = issue.keys.map((key) => (path ? `${path}.${key}` : key));
    return `${keys.join(', ')} (${file}): there is no such setting`;
  }
  return `${where}: ${issue.message}`;
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const each of Object.values(value)) freeze(each);
  }
  return value;
}
