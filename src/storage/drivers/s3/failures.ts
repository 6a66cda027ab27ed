// Errors of the SDK and of the network, by what they say about the settings.

interface SdkError {
  name?: string;
  code?: string;
  message?: string;
  $metadata?: { httpStatusCode?: number };
  cause?: unknown;
}

const throttling = new Set(['SlowDown', 'Throttling', 'ThrottlingException', 'TooManyRequestsException']);
const keys = new Set([
  'InvalidAccessKeyId',
  'CredentialsProviderError',
  'ExpiredToken',
  'InvalidToken',
  'Unauthorized',
]);
const regions = new Set([
  'AuthorizationHeaderMalformed',
  'PermanentRedirect',
  'IllegalLocationConstraintException',
  'TemporaryRedirect',
]);

/** The storage cannot be used with the settings. The message says what to do. */
export class StorageSettingError extends Error {
  /** The path of the setting, such as `storage.s3.bucket`. */
  readonly setting: string;

  constructor(setting: string, message: string, cause?: unknown) {
    super(message, { cause });
    this.setting = setting;
  }
}

function statusOf(error: unknown): number | undefined {
  return (error as SdkError).$metadata?.httpStatusCode;
}

/** Whether S3 says that the object, its bucket or its upload is missing. */
export function isMissing(error: unknown): boolean {
  return statusOf(error) === 404;
}

/** Whether S3 asks for fewer requests. */
export function isThrottled(error: unknown): boolean {
  const status = statusOf(error);
  return status === 503 || status === 429 || throttling.has((error as SdkError).name ?? '');
}

/** Whether a repeated request may succeed: network errors, time limits, 5xx, and slow requests. */
export function isTransientS3(error: unknown): boolean {
  const { name = '', code = '' } = error as SdkError;
  if (isThrottled(error) || name === 'RequestTimeout') return true;
  if (keys.has(name) || isCertificateError(code)) return false;
  const status = statusOf(error);
  return status === undefined || status >= 500;
}

/** The setting that probably causes the error, and what to do. `step` is the request that failed. */
export function settingError(error: unknown, step: string): StorageSettingError {
  const { name = '', code = '', message = '' } = error as SdkError;
  const status = statusOf(error);
  const reason = `${name === 'Error' || name === '' ? '' : `${name}: `}${message.split('\n', 1)[0]!.slice(0, 300)}`;
  const wrong = (key: string, text: string) =>
    new StorageSettingError(`storage.s3.${key}`, `${text} (${step}: ${reason})`, error);
  if (keys.has(name)) return wrong('accessKeyId', 'S3 does not know the access key, or none was found');
  if (name === 'SignatureDoesNotMatch') return wrong('secretAccessKey', 'the secret does not fit the access key');
  if (regions.has(name) || status === 301) return wrong('region', 'the bucket is in another region');
  if (name === 'NoSuchBucket' || (status === 404 && step === 'find the bucket'))
    return wrong('bucket', 'there is no such bucket; create it, or correct the name');
  if (name === 'RequestTimeTooSkewed')
    return wrong('endpoint', 'the clocks of this machine and of S3 differ; set them by NTP');
  if (status === 403)
    return wrong('accessKeyId', `the access key may not ${step}; check the secret, and allow it in the policy`);
  if (isCertificateError(code)) return wrong('caFile', 'the certificate of the S3 server is not trusted');
  if (status === undefined) return wrong('endpoint', 'the S3 server cannot be reached');
  return wrong('bucket', `the bucket cannot be used: S3 answers ${status}`);
}

function isCertificateError(code: string): boolean {
  return /CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY)/.test(code);
}
