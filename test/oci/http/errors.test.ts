import test from 'ava';
import { registryStatusOf, sendRegistryRefusal } from '../../../src/oci/http/errors.ts';
import { DomainError, errorNames, type ErrorName } from '../../../src/runtime/errors.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import { answerRequests } from '../../support/answers.ts';

// Clients decide by the status whether they try again, and show the code to people.

const answers: Record<ErrorName, [status: number, code: string]> = {
  Unauthorized: [401, 'UNAUTHORIZED'],
  ScopeMissing: [403, 'DENIED'],
  NameDenied: [403, 'DENIED'],
  Denied: [403, 'DENIED'],
  NotFound: [404, 'UNSUPPORTED'],
  Invalid: [400, 'UNSUPPORTED'],
  AlreadyExists: [409, 'DENIED'],
  TagFrozen: [400, 'DENIED'],
  Kept: [409, 'DENIED'],
  PackageInvalid: [400, 'UNSUPPORTED'],
  Unsupported: [405, 'UNSUPPORTED'],
  NameInvalid: [400, 'NAME_INVALID'],
  NameUnknown: [404, 'NAME_UNKNOWN'],
  TagInvalid: [400, 'MANIFEST_INVALID'],
  DigestInvalid: [400, 'DIGEST_INVALID'],
  DigestMismatch: [400, 'DIGEST_INVALID'],
  BlobUnknown: [404, 'BLOB_UNKNOWN'],
  ContentDamaged: [500, 'UNKNOWN'],
  ManifestUnknown: [404, 'MANIFEST_UNKNOWN'],
  ManifestInvalid: [400, 'MANIFEST_INVALID'],
  ManifestBlobUnknown: [400, 'MANIFEST_BLOB_UNKNOWN'],
  UploadUnknown: [404, 'BLOB_UPLOAD_UNKNOWN'],
  UploadInvalid: [400, 'BLOB_UPLOAD_INVALID'],
  UploadOutOfOrder: [416, 'BLOB_UPLOAD_INVALID'],
  UploadBusy: [409, 'BLOB_UPLOAD_INVALID'],
  LengthInvalid: [400, 'SIZE_INVALID'],
  RangeNotSatisfiable: [416, 'SIZE_INVALID'],
  TooLarge: [413, 'SIZE_INVALID'],
  TooManyRequests: [429, 'TOOMANYREQUESTS'],
  QuotaExceeded: [403, 'DENIED'],
  StorageFull: [507, 'UNAVAILABLE'],
  DatabaseUnavailable: [503, 'UNAVAILABLE'],
  StorageUnavailable: [503, 'UNAVAILABLE'],
  KeyUnavailable: [503, 'UNAVAILABLE'],
  UpstreamUnavailable: [502, 'UNAVAILABLE'],
  UpstreamTimeout: [504, 'UNAVAILABLE'],
  Aborted: [400, 'BLOB_UPLOAD_INVALID'],
};

test('each error has the status and the code of the registry protocol, with its message and its detail', async (t) => {
  let error: DomainError | undefined;
  const port = await answerRequests(t, (request, response) => {
    sendRegistryRefusal(request, response, error ? registryStatusOf(error) : 500, error);
  });
  const url = `http://127.0.0.1:${port}/`;
  const answered = async (next: DomainError | undefined) => {
    error = next;
    const response = await fetch(url);
    return { status: response.status, type: response.headers.get('content-type'), body: await response.json() };
  };
  const type = 'application/json';
  for (const name of errorNames) {
    const [status, code] = answers[name];
    const message = `what happened: ${name}`;
    t.deepEqual(await answered(new DomainError(name, message)), {
      status,
      type,
      body: { errors: [{ code, message }] },
    });
  }
  const denied = new UpstreamError('UpstreamUnavailable', 'It refuses access.', { denied: true });
  const refusal = { code: 'DENIED', message: 'It refuses access.', detail: { denied: true } };
  t.deepEqual(await answered(denied), { status: 403, type, body: { errors: [refusal] } });
  const message = 'An error occurred in this server. Its log has the details.';
  t.deepEqual(await answered(undefined), { status: 500, type, body: { errors: [{ code: 'UNKNOWN', message }] } });
});
