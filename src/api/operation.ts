import type { z } from 'zod';
import type { Action } from '../accounts/allow.ts';
import type { NameKind } from '../accounts/names.ts';
import type { Principal } from '../accounts/principal.ts';
import { DomainError } from '../errors.ts';

/** A request whose credentials, query and body have been checked. */
export interface Call<Query, Body> {
  principal: Principal;
  /** Path parameters, decoded. */
  params: Readonly<Record<string, string>>;
  query: Query;
  body: Body;
}

/** One operation of `/v1`: what routes it, checks it, runs it and describes it. */
export interface Operation<
  Query extends z.ZodType = z.ZodType,
  Body extends z.ZodType = z.ZodType,
  Answer extends z.ZodType = z.ZodType,
> {
  method: 'get' | 'post' | 'delete';
  /** As Express writes it: `:id` is one segment, `*name` one or more. */
  path: string;
  id: string;
  summary: string;
  action: Action;
  /** The name that it concerns: its kind, the parameter of the path that holds it, and how names are compared. */
  about?: { kind: NameKind; param: string; keyOf?: (name: string) => string };
  params?: Readonly<Record<string, string>>;
  query?: Query;
  body?: Body;
  status: 200 | 201 | 204;
  /** Left out where the answer has no body. */
  answer?: Answer;
  run(call: Call<z.output<Query>, z.output<Body>>): Promise<z.input<Answer>>;
}

/** An operation among others; its own types have done their work. */
export function operation<Query extends z.ZodType, Body extends z.ZodType, Answer extends z.ZodType>(
  definition: Operation<Query, Body, Answer>,
): Operation {
  return definition;
}

/** `value` as `schema` reads it; `Invalid`, naming the first field that is wrong. */
export function check<T extends z.ZodType>(schema: T, value: unknown, what: string): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const errors = result.error.issues.map(({ path, message }) => ({ field: path.join('.') || what, message }));
  const { field, message } = errors[0]!;
  throw new DomainError('Invalid', `${field}: ${message}`, { detail: { errors } });
}
