import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseDocument, type YAMLError } from 'yaml';
import type { z } from 'zod';
import { packageFolder } from '../runtime/package.ts';
import { schema, settings, type Config, type Setting } from './schema.ts';

/** A wrong setting, which stops the start. The message is one line that names the setting. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

export type Environment = Readonly<Record<string, string | undefined>>;

const defaultFile = join(packageFolder, 'config', 'default.yaml');
const serviceLink = /^ENTREPOT_(?:.*_)?(?:SERVICE_(?:HOST|PORT)(?:_.*)?|PORT_\d+_.*)$/;

/**
 * Loads the configuration from the file in `ENTREPOT_CONFIG`. The environment overrides the file; secrets can also come
 * from the files in `…_FILE`. Checks and freezes the whole configuration; throws `ConfigError`.
 */
export function loadConfig(environment: Environment): Config {
  const file = environment['ENTREPOT_CONFIG'] || defaultFile;
  const values = readYaml(file);
  const known = new Map<string, string>();
  for (const setting of settings) {
    known.set(setting.environment, setting.path);
    let value: unknown = environment[setting.environment];
    if (isServiceLink(setting.environment, environment)) continue;
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
    if (name.startsWith('ENTREPOT_TEST_') || isServiceLink(name, environment)) continue;
    throw new ConfigError(`${name}: there is no such setting`);
  }
  const result = schema.safeParse(values, { error: message });
  if (!result.success) throw new ConfigError(describe(result.error.issues[0]!, environment, file));
  return freeze({ ...result.data, data: resolve(result.data.data) });
}

/** Whether Kubernetes added this variable for a Service named `entrepot`. */
function isServiceLink(name: string, environment: Environment): boolean {
  return serviceLink.test(name) || (name.endsWith('_PORT') && /^(?:tcp|udp|sctp):/.test(environment[name] ?? ''));
}

function readYaml(file: string): Record<string, unknown> {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new ConfigError(`ENTREPOT_CONFIG: cannot read ${file}: ${(error as Error).message}`);
  }
  const document = parseDocument(text);
  const problem = document.errors[0] ?? document.warnings[0];
  if (problem) throw new ConfigError(describeYaml(problem, file));
  let values: unknown;
  try {
    values = document.toJS() ?? {};
  } catch {
    throw new ConfigError(`${file}: ${needsQuotes}`);
  }
  if (typeof values === 'object' && !Array.isArray(values)) return withoutEmpty(values as Record<string, unknown>);
  throw new ConfigError(`${file}: expected settings, one "key: value" a line`);
}

/** Problems whose message quotes nothing of the file, which may contain passwords. */
const unquoted = new Set([
  'BAD_INDENT',
  'BAD_SCALAR_START',
  'BLOCK_AS_IMPLICIT_KEY',
  'DUPLICATE_KEY',
  'MISSING_CHAR',
  'MULTIPLE_DOCS',
  'MULTILINE_IMPLICIT_KEY',
  'TAB_AS_INDENT',
]);
const needsQuotes = 'a value has characters that YAML reads in another way; put the value between single quotes';

function describeYaml({ code, linePos, message: text }: YAMLError, file: string): string {
  const at = linePos ? `, line ${linePos[0].line}` : '';
  return `${file}${at}: ${unquoted.has(code) ? text.split('\n')[0] : needsQuotes}`;
}

/** The paths of all settings and of their sections. */
const paths = new Set(
  settings.flatMap(({ path }) => path.split('.').map((_, at, keys) => keys.slice(0, at + 1).join('.'))),
);

/**
 * Removes settings and sections without a value, such as a section that has only comments. Other keys without a value stay,
 * so that they are refused as any key that is no setting.
 */
function withoutEmpty(values: Record<string, unknown>, section = ''): Record<string, unknown> {
  const isKnown = (key: string) => !key.includes('.') && paths.has(section + key);
  const entries = Object.entries(values).filter(([key, value]) => value !== null || !isKnown(key));
  return Object.fromEntries(
    entries.map(([key, value]) => [
      key,
      typeof value === 'object' && value !== null && !Array.isArray(value)
        ? withoutEmpty(value as Record<string, unknown>, `${section}${key}.`)
        : value,
    ]),
  );
}

function readSecret(environment: Environment, key: string, fileKey: string): string | undefined {
  const file = environment[fileKey];
  if (!file) return environment[key];
  if (environment[key]) throw new ConfigError(`${fileKey}: ${key} is set too; use one of them`);
  return readSecretFile(file, fileKey);
}

/** The secret in `file`, without the line break that editors add. An error names `key`. */
export function readSecretFile(file: string, key: string): string {
  let secret: string;
  try {
    secret = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new ConfigError(`${key}: cannot read ${file}: ${(error as Error).message}`);
  }
  if (secret === '') throw new ConfigError(`${key}: ${file} is empty`);
  return secret;
}

function parseJson(key: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConfigError(`${key}: expected a JSON array`);
  }
}

function assign(values: Record<string, unknown>, path: string, value: unknown): void {
  const keys = path.split('.');
  const last = keys.pop()!;
  let inner = values;
  for (const key of keys) {
    if (typeof inner[key] !== 'object' || inner[key] === null) inner[key] = {};
    inner = inner[key] as Record<string, unknown>;
  }
  inner[last] = value;
}

/** One line that names the setting as the user wrote it: the environment variable, or the path in the file. */
function describe(issue: z.core.$ZodIssue, environment: Environment, file: string): string {
  const path = issue.path.join('.');
  const setting = settings.find((each) => path === each.path || path.startsWith(`${each.path}.`));
  const variable = setting && variableOf(setting, environment);
  if (variable === undefined) {
    if (issue.code !== 'unrecognized_keys') return `${path || 'settings'} (${file}): ${issue.message}`;
    return `${issue.keys.map((key) => (path ? `${path}.${key}` : key)).join(', ')} (${file}): ${issue.message}`;
  }
  const inside = issue.path.slice(setting!.path.split('.').length);
  const keys = issue.code === 'unrecognized_keys' ? issue.keys : [];
  const where = [...inside, ...(keys.length > 0 ? [keys.join(', ')] : [])].join('.');
  return `${variable}: ${where ? `${where}: ` : ''}${issue.message}`;
}

/** The environment variable that sets `setting`; undefined if none does. */
function variableOf({ environment: name, secret }: Setting, environment: Environment): string | undefined {
  if (environment[name]) return name;
  return secret && environment[`${name}_FILE`] ? `${name}_FILE` : undefined;
}

const typeNames: Record<string, string> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  object: 'keys and values',
};

/** The message for issues without one in the schema. Never contains the value, which may be a secret. */
function message(issue: z.core.$ZodRawIssue): string {
  if (issue.code === 'unrecognized_keys') return 'there is no such setting';
  if (issue.code === 'invalid_value') return `expected ${issue.values.map(String).join(' or ')}`;
  if (issue.code === 'too_small' && issue.origin === 'string') {
    return issue.minimum === 1 ? 'must not be empty' : `expected ${issue.minimum} characters or more`;
  }
  if (issue.input === undefined) return 'is missing';
  if (issue.code === 'invalid_type') return `expected ${typeNames[issue.expected] ?? issue.expected}`;
  return 'is not valid';
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const each of Object.values(value)) freeze(each);
  }
  return value;
}
