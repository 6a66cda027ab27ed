/** The platform of an image. Without a variant, it matches any variant. */
export interface Platform {
  os: string;
  architecture: string;
  variant: string | undefined;
}

/** Parses a platform (`linux/amd64`, `linux/arm/v7`); undefined if `text` is not one. */
export function parsePlatform(text: string): Platform | undefined {
  const match = /^([a-z0-9]+)\/([a-z0-9_]+)(?:\/([a-z0-9.]+))?$/.exec(text.trim().toLowerCase());
  return match ? { os: match[1]!, architecture: match[2]!, variant: match[3] } : undefined;
}

/** The text that `parsePlatform` parses. */
export function platformText({ os, architecture, variant }: Platform): string {
  return variant === undefined ? `${os}/${architecture}` : `${os}/${architecture}/${variant}`;
}

/** Whether an image for `actual` is for `wanted`. arm64 has one variant, v8, which is often left out. */
export function isPlatform(actual: Platform, wanted: Platform): boolean {
  if (actual.os !== wanted.os || actual.architecture !== wanted.architecture) return false;
  const usual = wanted.architecture === 'arm64' ? 'v8' : undefined;
  return wanted.variant === undefined || (actual.variant ?? usual) === wanted.variant;
}
