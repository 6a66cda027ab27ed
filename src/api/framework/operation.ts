import type { IncomingMessage, ServerResponse } from 'node:http';
import type { z } from 'zod';
import type { Action } from '../../accounts/allow.ts';
import type { NameKind } from '../../accounts/names.ts';
import type { Principal } from '../../accounts/principal.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Cost } from '../../http/limit.ts';

/** A request with checked credentials, query and body. */
export interface OperationCall<Query, Body> {
  principal: Principal;
  /** The account that owns the name which the operation concerns; for an operation without a name, that of the principal. */
  owner: number;
  /** Path parameters, decoded. */
  params: Readonly<Record<string, string>>;
  query: Query;
  body: Body;
  /** For an operation with `receives`, which reads the body by itself. */
  receiving: Receiving | undefined;
}

/** A request whose body is read while it arrives. */
export interface Receiving {
  request: IncomingMessage;
  response: ServerResponse;
}

/** The body that an operation receives. */
interface ReceivedBody {
  /** Describes the fields of a multipart form, whose files are strings of the format `binary`. Without it, the body is a file. */
  fields?: z.ZodType;
  /** Whether it stores the files, which count against the limits of the account. */
  stores: boolean;
}

/** One operation of `/v1`. Routing, checks and the OpenAPI document follow from it. */
export interface Operation<
  Query extends z.ZodType = z.ZodType,
  Body extends z.ZodType = z.ZodType,
  Answer extends z.ZodType = z.ZodType,
> {
  method: 'get' | 'post' | 'put' | 'patch' | 'delete';
  /** In Express syntax: `:id` is one segment, `*name` is one or more. */
  path: string;
  /** Whether the parameters of the path are its own; if not, the next operation with a path that matches answers. */
  matches?: (params: Readonly<Record<string, string>>) => boolean;
  id: string;
  summary: string;
  action: Action;
  /** Whether people use it with the session of the console, whose cookie no other operation takes. */
  session?: boolean;
  /** What it costs besides its answer, if that has a limit. */
  cost?: Cost;
  /** The name that it concerns: its kind, the parameter of the path that holds it, and how names are compared. */
  subject?: { kind: NameKind; param: string; keyOf?: (name: string) => string };
  /** For an operation that concerns all names: the sentence that refuses a token with name patterns. */
  allNames?: string;
  /** Whether it makes or changes what has no end of its own. A short-lived token cannot use it. */
  lasting?: boolean;
  params?: Readonly<Record<string, string>>;
  query?: Query;
  body?: Body;
  /** A multipart form, or a file, instead of `body`. */
  receives?: ReceivedBody;
  status: 200 | 201 | 204;
  /** The schema of the answer; undefined for an answer without a body, and for a file. */
  answer?: Answer;
  /** The media types of an answer that is a file: see `fileOperation`. */
  sends?: readonly string[];
  run(call: OperationCall<z.output<Query>, z.output<Body>>): Promise<z.input<Answer>>;
}

/** Checks the types of `definition`, and returns it with the general type, for a list of operations. */
export function operation<Query extends z.ZodType, Body extends z.ZodType, Answer extends z.ZodType>(
  definition: Operation<Query, Body, Answer>,
): Operation {
  return definition;
}

/** Checks that a request has a multipart form; throws `Unsupported`. */
export function requireForm({ headers }: IncomingMessage): void {
  if (/^multipart\/form-data\s*;/i.test(headers['content-type'] ?? '')) return;
  throw new DomainError('Unsupported', 'Send the body as a form, with Content-Type: multipart/form-data.');
}

/** What a value that is too small or too large should be, where the schema does not say it; undefined for other issues. */
function boundText(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code !== 'too_small' && issue.code !== 'too_big') return undefined;
  const [bound, limit] = issue.code === 'too_small' ? ['at least', issue.minimum] : ['at most', issue.maximum];
  if (issue.code === 'too_small' && issue.origin === 'string' && limit === 1) return 'must not be empty';
  const units: Partial<Record<string, string>> = { string: ' characters', array: ' values' };
  return `expected ${bound} ${limit}${units[issue.origin] ?? ''}`;
}

/** Most wrong fields of a request that the answer names. */
const maxErrors = 20;

/** Parses `value` with `schema`; throws `Invalid`, which names the first wrong field. */
export function check<T extends z.ZodType>(schema: T, value: unknown, what: string): z.output<T> {
  const result = schema.safeParse(value, { error: boundText });
  if (result.success) return result.data;
  const errors = result.error.issues
    .slice(0, maxErrors)
    .map(({ path, message }) => ({ field: path.join('.') || what, message }));
  const { field, message } = errors[0]!;
  throw new DomainError('Invalid', `${field}: ${message}`, { detail: { errors } });
}
