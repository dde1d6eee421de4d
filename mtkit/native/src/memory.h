// Memory for arrays of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mtkit {

// An array that begins at a cache line. It can be moved, not copied; one that was moved is not used
// again.
template <class T>
class Array {
public:
    // Numbers that are not set; what was in it is lost.
    void allocate(size_t size) {
        data_.reset();
        size_ = 0;
        if (size == 0) return;
        if (size > (SIZE_MAX - LARGE) / sizeof(T)) throw std::bad_alloc();
        const size_t unit = size * sizeof(T) < LARGE ? 64 : LARGE;
        const size_t bytes = (size * sizeof(T) + unit - 1) / unit * unit;
        data_.reset(static_cast<T*>(std::aligned_alloc(unit, bytes)));
        if (data_ == nullptr) throw std::bad_alloc();
#ifdef __linux__
        if (unit == LARGE) madvise(data(), bytes, MADV_HUGEPAGE);
#endif
        size_ = size;
    }
    // New zeros.
    void resize(size_t size) {
        allocate(size);
        if (size > 0) std::memset(data(), 0, size * sizeof(T));
    }
    // Room for at least `size` numbers, for a buffer that is used again: zeros, or what was there.
    T* room(size_t size) {
        if (size > size_) resize(size + size / 4);
        return data();
    }

    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

private:
    // A large page of memory: reading a large matrix is faster with few, large pages.
    static constexpr size_t LARGE = size_t{1} << 21;

    struct Free {
        void operator()(T* data) const { std::free(data); }
    };
    std::unique_ptr<T[], Free> data_;
    size_t size_ = 0;
};

}  // namespace mtkit
