import { z } from 'zod';
import type { TestServer } from './server.ts';

type Json = Record<string, unknown>;

let document: Promise<OpenDocument> | undefined;

/** The OpenAPI document of the API, for checking real answers. */
export class OpenDocument {
  readonly document: Json;
  readonly #validators = new Map<Json, z.ZodType>();

  private constructor(document: Json) {
    this.document = document;
  }

  /** That of `server`: all servers of a test file have the same, which takes long to make and to check with. */
  static of(server: TestServer): Promise<OpenDocument> {
    document ??= server
      .fetch('/v1/openapi.json', { token: null })
      .then(async (answer) => new OpenDocument((await answer.json()) as Json));
    return document;
  }

  /** `GET /packages`, … */
  get operations(): string[] {
    return Object.entries(this.document['paths'] as Json).flatMap(([path, methods]) =>
      Object.keys(methods as Json).map((method) => `${method.toUpperCase()} ${path}`),
    );
  }

  /** The body of `response`; throws if the document does not allow this status, type and body for `operation`. */
  async read(operation: string, response: Response): Promise<Json> {
    const [method = '', path = ''] = operation.toLowerCase().split(' ');
    const described = (this.document['paths'] as Record<string, Record<string, Json>>)[path]?.[method];
    if (!described) throw new Error(`${operation} is not described`);
    const responses = described['responses'] as Record<string, Json>;
    const answer = responses[response.status] ?? responses['default']!;
    const text = await response.text();
    const content = answer['content'] as Record<string, Json> | undefined;
    if (!content) {
      if (text !== '') throw new Error(`${operation} answered ${response.status} with a body`);
      return {};
    }
    const schema = content[response.headers.get('content-type') ?? '']?.['schema'] as Json | undefined;
    if (!schema) throw new Error(`${operation} answered ${response.status} as ${response.headers.get('content-type')}`);
    const body = JSON.parse(text) as Json;
    this.#validator(schema).parse(body);
    return body;
  }

  #validator(schema: Json): z.ZodType {
    const known = this.#validators.get(schema);
    if (known) return known;
    const text = JSON.stringify({ ...schema, $defs: (this.document['components'] as Json)['schemas'] });
    const made = z.fromJSONSchema(
      JSON.parse(text.replaceAll('#/components/schemas/', '#/$defs/')) as z.core.JSONSchema.JSONSchema,
    );
    this.#validators.set(schema, made);
    return made;
  }
}
