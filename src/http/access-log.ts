import { pino, type Logger } from 'pino';
import type { Use } from '../usage/counters.ts';

/** The access-log line of a finished request. */
export interface AccessLine extends Use {
  request: string;
  method: string;
  path: string;
  seconds: number;
  remote: string | undefined;
  agent: string | undefined;
  account: string | undefined;
  billable: boolean;
}

/** The internals that pino exposes under `pino.symbols`. */
type PinoInternals = Record<symbol, unknown>;

/** Matches text that needs no escaping in JSON. */
const plain = /^[ !#-[\]-~]*$/;

/**
 * Writes the same line as `log.info(line, 'request')`. There is one for each request, and pino, which accepts any
 * object, takes as much time for it as the rest of a small answer.
 */
export function writeAccess(log: Logger, line: AccessLine): void {
  if (!log.isLevelEnabled('info')) return;
  const { chindingsSym, streamSym } = pino.symbols;
  const internals = log as unknown as PinoInternals;
  const stream = internals[streamSym] as { write(text: string): void };
  stream.write(`{"level":30,"time":${line.at}${String(internals[chindingsSym])},${fieldsOf(line)},"msg":"request"}\n`);
}

function fieldsOf(line: AccessLine): string {
  const { request, at, method, path, status, complete, seconds, received, sent, fetched, kind, billable } = line;
  return (
    `"request":"${request}","at":${at},"method":"${method}","path":${quoted(path)},"status":${status}` +
    `,"complete":${complete},"seconds":${seconds},"received":${received},"sent":${sent},"fetched":${fetched}` +
    `${field('remote', line.remote)}${field('agent', line.agent)}${field('account', line.account)}` +
    `${field('token', line.token)},"kind":"${kind}","subject":${quoted(line.subject)}${field('act', line.act)}` +
    `${field('cache', line.cache)},"billable":${billable}`
  );
}

function field(name: string, value: string | undefined): string {
  return value === undefined ? '' : `,"${name}":${quoted(value)}`;
}

function quoted(text: string): string {
  return plain.test(text) ? `"${text}"` : JSON.stringify(text);
}
