import { OpenAPIRegistry, OpenApiGeneratorV31, type RouteConfig } from '@asteasolutions/zod-to-openapi';
import { z } from 'zod';
import { scopeFor } from '../accounts/allow.ts';
import type { Operation } from './framework/operation.ts';
import { problemDocument } from './framework/schemas.ts';
import { tokenExchangePaths } from './publishers/token-exchange-paths.ts';

/** The OpenAPI 3.1 document of `operations`, without `servers`, which depend on the host of the request. */
export function describe(operations: readonly Operation[]): Record<string, unknown> {
  const registry = new OpenAPIRegistry();
  registry.registerComponent('securitySchemes', 'bearer', {
    type: 'http',
    scheme: 'bearer',
    description: 'An API token',
  });
  registry.registerComponent('securitySchemes', 'basic', {
    type: 'http',
    scheme: 'basic',
    description: 'User name `api`, with an API token as the password',
  });
  for (const each of operations) registry.registerPath(pathOf(each));
  for (const each of tokenExchangePaths) registry.registerPath(each);
  return new OpenApiGeneratorV31(registry.definitions).generateDocument({
    openapi: '3.1.0',
    info: {
      title: 'Entrepot',
      version: 'v1',
      description:
        'List, inspect and delete packages and container images; manage API tokens; read usage. An unknown query parameter is an error.',
    },
    security: [{ bearer: [] }, { basic: [] }],
  }) as unknown as Record<string, unknown>;
}

const file = { type: 'string', format: 'binary' } as const;

function pathOf(each: Operation): RouteConfig {
  const scope = scopeFor(each.action);
  const parameters = Object.entries(each.params ?? {}).map(
    ([name, description]) => [name, z.string().meta({ description })] as const,
  );
  return {
    method: each.method,
    path: each.path.replace(/[:*](\w+)/g, '{$1}'),
    operationId: each.id,
    summary: each.summary,
    description: scope === undefined ? 'Needs a valid token.' : `Needs the scope \`${scope}\`.`,
    request: {
      ...(parameters.length > 0 && { params: z.object(Object.fromEntries(parameters)) }),
      ...(each.query && { query: each.query as z.ZodObject }),
      ...(each.receives && {
        body: {
          required: true,
          content: each.receives.fields
            ? { 'multipart/form-data': { schema: each.receives.fields } }
            : { 'application/octet-stream': { schema: file } },
        },
      }),
      ...(each.body && { body: { required: true, content: { 'application/json': { schema: each.body } } } }),
    },
    responses: {
      [each.status]: {
        description: each.status === 204 ? 'Done' : 'Success',
        ...(each.answer && { content: { 'application/json': { schema: each.answer } } }),
        ...(each.sends && { content: Object.fromEntries(each.sends.map((type) => [type, { schema: file }])) }),
      },
      default: {
        description: 'Error',
        content: { 'application/problem+json': { schema: problemDocument } },
      },
    },
  };
}
